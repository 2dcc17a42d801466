"""Requests that are sent to agents at set times."""
