"""Finding, reading and checking agents."""
