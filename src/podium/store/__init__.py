"""The store: where run timelines are kept, and how other processes learn of new entries."""
