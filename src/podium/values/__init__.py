"""Frozen data types that are stored, sent and returned. They import nothing else from Podium."""
