"""Drawing, prompting and text for commands on a terminal."""
