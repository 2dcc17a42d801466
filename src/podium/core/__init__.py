"""The execution rules: operations, sessions, timelines, permissions and budgets.

These modules start no processes, and do not use HTTP, SQL or git.
"""
