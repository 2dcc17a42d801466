"""The model engine: our own tool loop over a model API."""
