"""The subcommands of `podium workers`, and functions that format text about workers for other commands."""
