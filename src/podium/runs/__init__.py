"""What surfaces share: a run in this process, looking up runs, and the inbox."""
