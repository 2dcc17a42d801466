"""What lists, pages and reports read about runs: queries that return rows."""
