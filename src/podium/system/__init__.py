"""Wrap operating system features: child processes, files and locks."""
