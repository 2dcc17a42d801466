"""Connect to MCP servers, and provide their tools to the agents of a run."""
