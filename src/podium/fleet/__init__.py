"""Run a fleet: runs are queued in a placement engine, and hosts claim them."""
