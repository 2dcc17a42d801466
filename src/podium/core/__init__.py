"""The rules of execution: operations, sessions, timelines, permissions and budgets. No process, HTTP, SQL or git."""
