"""Run commands in a sandbox.

The modules define the mounts, resource limits and system call filter, hide secret files, and test the sandbox.
"""
