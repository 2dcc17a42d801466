"""The commands that delegate work to workers, inspect them and merge their branches."""
