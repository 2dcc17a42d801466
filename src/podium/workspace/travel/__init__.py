"""Move the code of runs between machines through a remote git repository."""
