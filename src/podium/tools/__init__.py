"""Provide the agents' tools: files, search, shell, checks, diffs, questions, web pages, and user-defined functions."""
