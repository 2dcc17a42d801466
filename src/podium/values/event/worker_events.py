"""Events about workers: their checkouts, commits, starts and results."""

from ..agent import Budget
from ..request import Outcome
from ..usage import NO_USAGE, Usage
from .base_event import EventBase
from .plan_events import BlockerRaised, HandoverAsked


class WorkerPlaced(EventBase, frozen=True, kw_only=True, tag="worker_placed"):
    """A worker got its checkout; `base` is the commit that its branch started at."""

    path: str
    branch: str
    base: str


class WorkCommitted(EventBase, frozen=True, kw_only=True, tag="work_committed"):
    """A worker's changes were committed to its branch. `commits` are all commits since its base, newest first."""

    branch: str
    commit: str
    commits: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    added: int = 0
    removed: int = 0


class WorkerSent(EventBase, frozen=True, kw_only=True, tag="worker_sent"):
    """This run started a worker, whose own run has the id `run`.

    `budget` is the worker's share of this run's budget; it stays reserved until the worker returns. With
    `is_shared`, the worker uses the checkout of other members of its team. `asked` is the branch that the agent asked
    for, if the worker is on another branch.
    """

    run: str
    branch: str = ""
    task: str = ""
    budget: Budget | None = None
    is_shared: bool = False
    asked: str = ""


class WorkerReturned(EventBase, frozen=True, kw_only=True, tag="worker_returned"):
    """A worker ended: its outcome, its answer or error, its usage and the files that it changed.

    `base` is the commit that its branch started at, and `commit` is the last commit on it. `signal` is the handover or
    blocker with which the worker, as the owner of a plan step, ended its turn, and `summary` summarises that turn.
    """

    run: str
    outcome: Outcome
    text: str = ""
    error: str = ""
    usage: Usage = NO_USAGE
    files: tuple[str, ...] = ()
    base: str = ""
    commit: str = ""
    signal: HandoverAsked | BlockerRaised | None = None
    summary: str = ""
