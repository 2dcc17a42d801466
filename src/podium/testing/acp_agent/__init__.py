"""A scripted coding agent that speaks the Agent Client Protocol, for tests: `python -m podium.testing.acp_agent`."""
