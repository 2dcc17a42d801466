"""A worker in the charge of its commander, from its checkout to its end."""

from __future__ import annotations

from dataclasses import dataclass, field

from anyio import CancelScope, Event

from ..policy import Rules
from ..values.event import RunStarted
from ..values.worker_task import Errand
from ..workspace.git.repository import Checkout
from .current_rules import held_to
from .spawner import Child, Spawned
from .wire.link import Link
from .wire.wire_message import Order, Report, State


@dataclass(slots=True, kw_only=True)
class Worker:
    """A worker as its commander knows it."""

    run: str
    errand: Errand
    task: str
    model: str = ""
    engine: str = ""
    held_to: Rules = field(default_factory=Rules)
    """What its run and its agents must not do, or not without asking, whatever the settings say by now."""
    state: State = "starting"
    process: Child | Spawned | None = None
    link: Link[Report, Order] | None = None
    checkout: Checkout | None = None
    placing: CancelScope = field(default_factory=CancelScope)
    """The block in which its checkout is made."""
    is_ending: bool = False
    over: Event = field(default_factory=Event)

    @classmethod
    def of(cls, run: str, started: RunStarted) -> Worker:
        """The worker for a run that began so."""
        assert started.errand is not None
        first = started.agents[0]
        return cls(
            run=run,
            errand=started.errand,
            task=started.request.text,
            model=first.model,
            engine=first.engine,
            held_to=held_to(started),
        )
