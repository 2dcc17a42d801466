"""Local models, which Podium itself runs on this machine: installing them, and the process that serves them."""
