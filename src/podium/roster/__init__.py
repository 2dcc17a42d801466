"""Agents: finding their files, reading them and checking that they fit together."""
