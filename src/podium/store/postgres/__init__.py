"""Keep a store in a PostgreSQL database."""
