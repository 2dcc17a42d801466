"""Workers: agents that work in their own processes and checkouts, and the wire protocol they report over."""
