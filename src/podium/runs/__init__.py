"""What the user interfaces share: starting, steering, forking and looking up runs, and answering their requests."""
