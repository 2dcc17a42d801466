"""Programs that do the same with other packages, each in its own environment, and how those are created."""
