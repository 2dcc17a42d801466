"""How a run stands, in the one word that lists and messages use."""

from __future__ import annotations

from typing import Literal

from ..event import RunEnded, RunPaused
from ..request import Outcome
from ..store.reader import Summary

State = Outcome | Literal["running", "resumable"]


def state(summary: Summary) -> State:
    """`running`, `paused`, `resumable` (not ended, and nobody works on it), or how it ended."""
    match summary.last.event:
        case RunEnded(outcome=outcome):
            return outcome
        case RunPaused():
            return "paused"
    return "running" if summary.owner is not None and summary.owner.is_alive else "resumable"


def is_over(summary: Summary) -> bool:
    """Whether the run has ended and will not change again."""
    return isinstance(summary.last.event, RunEnded)
