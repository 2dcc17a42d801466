"""Define the keys of settings files, and read, check and layer the files."""
