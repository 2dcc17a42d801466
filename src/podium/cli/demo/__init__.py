"""Implement the parts of `podium demo` other than the command itself."""
