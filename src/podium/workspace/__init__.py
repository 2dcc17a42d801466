"""Manage the workspace: git repositories, worktrees for workers, merging and the command sandbox."""
