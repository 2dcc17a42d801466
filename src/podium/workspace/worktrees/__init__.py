"""Manage worktrees: create a checkout for each worker, read its status and disk usage, and remove it."""
