"""Define the keys of settings files, and read, check and merge these files."""
