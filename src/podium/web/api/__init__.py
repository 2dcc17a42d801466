"""The HTTP API: access rules, one resumable stream of entries, and a route for each thing a client reads or does."""
