"""The client of another machine's `podium serve`: known servers, connections, and commands that run there."""
