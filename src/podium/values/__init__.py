"""Frozen data: what is stored, sent and returned. It imports nothing else of Podium."""
