"""Implement the subcommands of `podium team`, each in a separate module."""
