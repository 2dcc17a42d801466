"""The quality benchmark: what a model achieves with Podium, and whether Podium's reports about it are true."""
