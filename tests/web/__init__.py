"""The dashboard in a real browser, and the API behind it."""
