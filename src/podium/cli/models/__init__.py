"""Implement the subcommands of `podium models`, each in a separate module."""
