"""Store the timelines of runs, with mailboxes, groups, workers and worktrees, and wake other processes."""
