"""Worktrees: one checkout for each worker, its status, its disk usage and its removal."""
