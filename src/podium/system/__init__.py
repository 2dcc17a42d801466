"""Thin wrappers of the operating system: child processes, files, locks."""
