"""Provide the entry points of the background processes: the commander, the fork server and the workers."""
