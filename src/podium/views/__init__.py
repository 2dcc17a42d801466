"""Folds over a timeline, for every surface."""
