"""Merging the branches of workers: what can be merged, how, and the acts that do it."""
