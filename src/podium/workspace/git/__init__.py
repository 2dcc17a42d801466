"""Use git: find repositories, list and move branches, resolve revisions, and take snapshots of a working tree."""
