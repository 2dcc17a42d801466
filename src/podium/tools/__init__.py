"""What agents act with: files, search, shell, checks, diffs, questions, the web, and functions of yours."""
