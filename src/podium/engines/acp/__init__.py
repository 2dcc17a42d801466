"""Use coding agents of other vendors as engines, over the Agent Client Protocol (ACP)."""
