"""The commands of `podium team`."""
