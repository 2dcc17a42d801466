"""Implement the chat with an agent: its consoles, slash commands and output."""
