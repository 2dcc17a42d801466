"""Servers for other programs: an OpenAI endpoint, an MCP server, an ACP agent and A2A agents."""
