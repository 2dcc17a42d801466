"""Implement the model engine: Podium's own tool loop over a model API."""
