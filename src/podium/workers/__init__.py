"""Run agents as workers, in their own processes and checkouts, and connect them to a commander."""
