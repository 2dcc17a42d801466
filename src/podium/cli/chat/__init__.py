"""The chat: consoles, slash commands, and the output of runs."""
