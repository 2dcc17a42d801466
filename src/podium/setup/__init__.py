"""From settings and files to a run: its agents, its tools, its sandbox, and what is checked before it starts."""
