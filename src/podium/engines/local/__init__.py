"""Models that run on this machine without a server of the user's: fetching them, and the process that serves them."""
