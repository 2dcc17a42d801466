"""Programs that do the same with other packages, each in an environment of its own, and how those are made."""
