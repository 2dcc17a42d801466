"""The rules for executing a run: how operations, sessions, timelines, permissions and budgets work.

These modules start no processes, and do not use HTTP, SQL or git.
"""
