"""Implement the model engine: Podium's own tool loop, which calls a model through its API."""
