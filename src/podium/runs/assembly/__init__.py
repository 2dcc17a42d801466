"""Prepare a run from settings and files: its agents, tools and sandbox, and the checks before it starts."""
