"""Settings files: their keys, how they are read and checked, and how they are layered."""
