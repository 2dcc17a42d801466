"""Use coding agents from other vendors as engines, over the Agent Client Protocol (ACP)."""
