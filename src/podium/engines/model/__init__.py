"""The model engine: our own loop over a model API."""
