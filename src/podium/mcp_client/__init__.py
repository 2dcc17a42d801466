"""The MCP client: it gives the agents of a run the tools of MCP servers."""
