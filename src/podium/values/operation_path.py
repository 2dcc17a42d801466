"""The path of an operation in its run, such as `lead/advice:legal#1`."""

from __future__ import annotations


def parse_agent_name(operation: str) -> str:
    """Return the name of an operation's agent: `legal` for `lead/advice:legal#1`."""
    segment = operation.rpartition("/")[2]
    return segment.partition(":")[2].rpartition("#")[0] or segment
