"""How fast Podium is, beside the physical limit and beside its peers: `python -m benchmarks`."""
