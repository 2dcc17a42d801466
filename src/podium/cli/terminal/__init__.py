"""Drawing, prompts and text for commands on a terminal."""
