"""Find agent files, read them, and check how agents refer to each other."""
