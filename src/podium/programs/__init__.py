"""The programs that run in the background: the commander, the fork server and the workers."""
