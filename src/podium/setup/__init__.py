"""From settings and files to a run: its agents, its tools, its sandbox, and the checks before it starts."""
