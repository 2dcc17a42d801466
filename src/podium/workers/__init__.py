"""Workers: agents that work in their own processes and checkouts, and the wire protocol on which they report."""
