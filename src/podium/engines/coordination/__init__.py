"""Podium's tools for coding agents from other vendors: an MCP server for each agent session, with its own token."""
