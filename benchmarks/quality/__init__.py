"""What a model achieves with Podium, and whether what Podium reports about it is true."""
