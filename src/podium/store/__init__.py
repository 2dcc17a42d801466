"""Store the timelines of runs, and notify other processes of new entries."""
