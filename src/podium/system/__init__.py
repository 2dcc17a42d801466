"""Wrap functions of the operating system: child processes, files and locks."""
