"""Events about workers: their checkouts, commits, starts and results."""

from msgspec import Struct

from ..agent import Budget
from ..request import Outcome
from ..usage import NO_USAGE, Usage
from .base_event import EventBase
from .plan_events import BlockerRaised, HandoverAsked


class AlsoPlaced(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker's checkout of an additional repository; `base` is the commit that its branch started at."""

    root: str
    path: str
    base: str


class AlsoCommitted(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker's commits in an additional repository. `commits` lists all commits since its base, newest first."""

    root: str
    commit: str
    commits: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    added: int = 0
    removed: int = 0


class WorkerPlaced(EventBase, frozen=True, kw_only=True, tag="worker_placed"):
    """A worker's checkout was created; `base` is the commit that its branch started at.

    If the run can move to another machine, `host` is the id of the machine with the checkout. `also` lists the
    checkouts of additional repositories.
    """

    path: str
    branch: str
    base: str
    host: str = ""
    also: tuple[AlsoPlaced, ...] = ()


class WorkCommitted(EventBase, frozen=True, kw_only=True, tag="work_committed"):
    """A worker's changes were committed to its branch. `commits` lists all commits since its base, newest first.

    `also` lists its commits in additional repositories.
    """

    branch: str
    commit: str
    commits: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    added: int = 0
    removed: int = 0
    also: tuple[AlsoCommitted, ...] = ()


class WorkPushed(EventBase, frozen=True, kw_only=True, tag="work_pushed"):
    """The files of a worker's checkout were pushed to the ref `ref` of its remote, as the commit `commit`.

    The first parent of that commit is `head`, the tip of the worker's branch. The commit contains everything that was
    done up to the entry `through` of the timeline, except the paths in `ignored`: files that git ignores, and nested
    repositories. If nothing has changed since the last push, it is the same commit.
    """

    commit: str
    head: str
    ref: str
    through: int
    ignored: tuple[str, ...] = ()


class PushFailed(EventBase, frozen=True, kw_only=True, tag="push_failed"):
    """The files of a worker's checkout could not be pushed. The push is retried after the next step.

    If several pushes in a row fail for the same reason, only the first failure is recorded.
    """

    reason: str


class WorkMoved(EventBase, frozen=True, kw_only=True, tag="work_moved"):
    """A worker's run continues on another machine, in the checkout `path`, with the files of the pushed `commit`.

    If nothing had been pushed, `commit` is empty and the files come from the branch's base. `unpushed` describes the
    steps whose changes are missing from the files. `ignored` lists the files ignored by git and the nested repositories
    that were not transferred.
    """

    host: str
    path: str
    commit: str = ""
    unpushed: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


class WorkerSent(EventBase, frozen=True, kw_only=True, tag="worker_sent"):
    """This run started a worker, whose own run has the id `run`.

    `budget` is the worker's share of this run's budget; it stays reserved until the worker returns. With
    `is_shared`, the worker shares a checkout with other members of its team. `asked` is the branch that the agent asked
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
    blocker that ended the worker's turn as the owner of a plan step, and `summary` summarises that turn. If its
    work is unproved, `unproved` is the reason.
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
    is_unknown_model: bool = False
    """Whether the worker failed because the provider of its agent has no such model."""
    unread: tuple[str, ...] = ()
    """The texts of the messages that the worker did not receive before it ended."""
    unproved: str = ""


WorkerEvent = WorkerPlaced | WorkCommitted | WorkPushed | PushFailed | WorkMoved | WorkerSent | WorkerReturned
