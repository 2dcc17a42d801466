"""Processes of their own: the commander, and each of its workers."""
