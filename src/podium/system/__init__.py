"""Thin wrappers around the operating system: child processes, files and locks."""
