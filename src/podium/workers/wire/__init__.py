"""The wire between a worker and its commander: frames, messages and connections."""
