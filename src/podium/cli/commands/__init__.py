"""Implement the commands of `podium`, each in a separate module."""
