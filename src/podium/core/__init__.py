"""The execution rules: operations, sessions, timelines, permissions and budgets. No process, HTTP, SQL or git."""
