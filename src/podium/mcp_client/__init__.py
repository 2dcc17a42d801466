"""Tools of MCP servers for the agents of a run."""
