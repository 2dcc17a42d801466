"""The client for `podium serve` on another machine: known servers, connections, and commands that run there."""
