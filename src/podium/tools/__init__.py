"""The tools of agents: files, search, shell, checks, diffs, questions, web pages, and your own functions."""
