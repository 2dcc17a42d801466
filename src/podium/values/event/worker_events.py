"""Events about workers: where they were sent, what they committed and returned."""

from __future__ import annotations

from ..agent import Budget
from ..request import Outcome
from ..usage import NO_USAGE, Usage
from .base_event import EventBase


class WorkerPlaced(EventBase, frozen=True, kw_only=True, tag="worker_placed"):
    """A worker has its checkout; `base` is the commit that its branch began at."""

    path: str
    branch: str
    base: str


class WorkCommitted(EventBase, frozen=True, kw_only=True, tag="work_committed"):
    """What a worker changed is on its branch. `commits` are all since its base, the newest first."""

    branch: str
    commit: str
    commits: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    added: int = 0
    removed: int = 0


class WorkerSent(EventBase, frozen=True, kw_only=True, tag="worker_sent"):
    """A part of this run is done by a worker, whose own run has this id.

    `budget` is what it may use of this run's, and is kept for it until it returns. With `is_shared` it works in the
    checkout of others of its team.
    """

    run: str
    branch: str = ""
    task: str = ""
    budget: Budget | None = None
    is_shared: bool = False


class WorkerReturned(EventBase, frozen=True, kw_only=True, tag="worker_returned"):
    """A worker that was sent is through: how it ended, what it said, what it used and which files it changed."""

    run: str
    outcome: Outcome
    text: str = ""
    error: str = ""
    usage: Usage = NO_USAGE
    files: tuple[str, ...] = ()
