"""Store the timelines of runs, mailboxes, groups, workers and worktrees, and notify other processes of new data."""
