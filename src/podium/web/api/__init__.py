"""The HTTP API: access rules, one resumable stream of entries, and the routes that clients call."""
