"""Implement the subcommands of `podium workers`, and format output about workers for other commands."""
