"""Chat with an agent: consoles, slash commands, and the output of runs."""
