"""Worktrees: one checkout for each worker, its state, its size and its removal."""
