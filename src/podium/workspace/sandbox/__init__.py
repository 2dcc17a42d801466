"""Run commands in a sandbox: mounts, resource limits, system call filter, secret files and self-test."""
