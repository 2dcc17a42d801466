"""The subcommands of `podium workers`, and text about workers that several commands share."""
