"""One module for each command of `podium`."""
