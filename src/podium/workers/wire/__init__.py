"""Implement the wire protocol between a worker and its commander: frames, messages and connections."""
