"""The commands of `podium`, one module each."""
