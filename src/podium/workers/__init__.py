"""Workers: agents at work in processes and checkouts of their own, and the wire on which they report."""
