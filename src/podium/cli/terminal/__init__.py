"""Draw output, prompt the user, and format text for commands on a terminal."""
