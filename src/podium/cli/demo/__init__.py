"""The parts of `podium demo` that are not its command."""
