"""Merging the branches of workers: trial merges, the forecast, the merge train and the target."""
