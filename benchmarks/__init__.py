"""Benchmarks that compare Podium's speed with the physical limit and with its peers: `python -m benchmarks`."""
