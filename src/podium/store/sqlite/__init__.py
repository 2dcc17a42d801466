"""Store runs in a SQLite file."""
