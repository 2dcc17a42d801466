"""Serve agents to other programs: with an OpenAI endpoint, over MCP, as an ACP agent and as A2A agents."""
