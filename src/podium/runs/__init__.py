"""Start, steer, fork and look up runs, and answer their requests, for all user interfaces."""
