"""Serve agents to other programs: through an OpenAI endpoint, over MCP, as an ACP agent and as A2A agents."""
