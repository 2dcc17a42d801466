"""Code that all user interfaces share: handles of runs in this process, lookups in the store, and the inbox."""
