"""Git: repositories, branches, revisions and snapshots of a working tree."""
