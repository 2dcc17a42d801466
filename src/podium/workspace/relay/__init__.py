"""Connect a sandbox to the few services that its agent or command may use, over one inherited socket pair."""
