"""What lists and pages read about workers: queries that return rows."""
