"""Install local models, and run the process that serves them on this machine."""
