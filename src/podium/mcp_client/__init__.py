"""The MCP client: gives a run's agents the tools of MCP servers."""
