"""The chat: reading lines, slash commands, and showing what a run says."""
