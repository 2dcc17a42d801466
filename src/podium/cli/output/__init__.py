"""Format and draw the output of commands on a terminal, and prompt the user."""
