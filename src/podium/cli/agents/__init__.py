"""Implement the subcommands of `podium agents`, each in a separate module."""
