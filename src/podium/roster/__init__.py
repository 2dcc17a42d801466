"""Agents: finding their files, reading them and checking how they refer to each other."""
