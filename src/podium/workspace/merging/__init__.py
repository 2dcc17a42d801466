"""Merge workers' branches: trial merges, overlap forecasts, the merge train and fast-forwarding the target."""
