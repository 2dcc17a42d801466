"""Settings files: what they may say, how they are read and checked, and how they are layered."""
