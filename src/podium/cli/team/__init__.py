"""The subcommands of `podium team`, one module each."""
