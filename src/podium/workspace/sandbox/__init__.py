"""The sandbox around a command: mounts, limits, system calls and secret files."""
