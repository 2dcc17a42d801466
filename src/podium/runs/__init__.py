"""Start, follow, fork and look up runs, for all user interfaces."""
