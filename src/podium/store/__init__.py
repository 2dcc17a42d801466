"""The store: where the timelines of runs are kept, and how other processes learn of new entries."""
