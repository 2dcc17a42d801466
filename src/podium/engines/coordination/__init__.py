"""Podium's tools for coding agents of other vendors: one MCP server, with a token for each agent session."""
