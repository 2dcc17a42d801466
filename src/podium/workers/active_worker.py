"""Define the data that a commander keeps about each worker that it supervises."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from anyio import CancelScope, Event

from ..policy import Rules
from ..values.event import RunStarted
from ..values.worker_task import WorkerTask
from ..workspace.git.repository import Checkout
from ..workspace.travel.run_location import locate_task
from .current_rules import collect_restrictions
from .spawner import ForkedProcess, FreshProcess
from .wire.link import Link
from .wire.wire_message import Handshake, Order, Report

LONGEST_TASK = 200
"""How many characters of its task a worker's handshake contains."""


@dataclass(slots=True, kw_only=True)
class ActiveWorker:
    """A worker that a commander supervises. `worker_task` contains the paths on this machine."""

    run: str
    worker_task: WorkerTask
    handshake: Handshake
    """The message with which the worker's process introduces itself, still without a token."""
    restrictions: Rules = field(default_factory=Rules)
    """The deny and ask rules that the run started with; they apply even if the settings have changed since."""
    approval_seconds: float = inf
    """The time limit for answers, as the run recorded it. Only a host uses this value."""
    process: ForkedProcess | FreshProcess | None = None
    link: Link[Report, Order] | None = None
    checkouts: tuple[Checkout, ...] = ()
    checkout_scope: CancelScope = field(default_factory=CancelScope)
    """The cancel scope in which the worker's checkouts are created."""
    is_ending: bool = False
    refusal: str = ""
    """Why this machine cannot work on the run, or an empty string if it can."""
    needs_keys_again: bool = False
    """Whether the run will continue later, for example when a provider's limit resets. If so, its keys are kept."""
    finished: Event = field(default_factory=Event)

    @classmethod
    def from_run_started(cls, run: str, started: RunStarted, home: Path) -> ActiveWorker:
        """Return the worker for the run `run`, whose first event is `started`. `home` is the Podium home."""
        assert started.errand is not None
        first, task = started.agents[0], locate_task(started.errand, run, home)
        return cls(
            run=run,
            worker_task=task,
            handshake=Handshake(
                worker=run,
                token="",
                worktree=task.path,
                branch=task.branch,
                task=started.request.text[:LONGEST_TASK],
                model=first.model,
                engine=first.engine,
            ),
            restrictions=collect_restrictions(started),
            approval_seconds=inf if (seconds := started.settings.get("approval_seconds")) is None else float(seconds),
        )
