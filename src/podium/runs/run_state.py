"""How a run stands, in the one word that lists and messages use."""

from __future__ import annotations

from typing import Literal

from ..store.sqlite.reader import RunSummary
from ..values.event import Noticed, RunEnded, RunPaused, RunStarted
from ..values.request import Outcome

RunState = Outcome | Literal["running", "queued", "resumable"]


def derive_run_state(summary: RunSummary) -> RunState:
    """`running`, `paused`, `queued` (a worker that nobody has begun yet), `resumable`, or how it ended.

    A resumable run has not ended, and nobody works on it.
    """
    match summary.last.event:
        case RunEnded(outcome=outcome):
            return outcome
        case RunPaused():
            return "paused"
    if summary.owner is not None and summary.owner.is_alive:
        return "running"
    # What the person should know is noted when a worker is hired, before anybody begins.
    is_not_started = summary.owner is None and isinstance(summary.last.event, RunStarted | Noticed)
    return "queued" if is_not_started and is_worker_run(summary) else "resumable"


def is_worker_run(summary: RunSummary) -> bool:
    """Whether the run is a worker's, which a commander works on."""
    started = summary.first.event
    return isinstance(started, RunStarted) and started.errand is not None


def is_over(summary: RunSummary) -> bool:
    """Whether the run has ended and will not change again."""
    return isinstance(summary.last.event, RunEnded)
