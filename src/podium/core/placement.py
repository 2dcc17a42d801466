"""Placement: where work is done. Most of it is done here; some is sent to a worker in a process of its own.

What is sent is a run like any other. This process only waits for it, finds it again after a restart by the id
that it wrote down before, and calls it back when the work is not wanted any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from ..values.agent import Agent, Budget, Permissions
from ..values.event import WorkerReturned, WorkerSent

Idle = Callable[[], AbstractContextManager[None]]
"""A block in which no time passes for whoever waits for a worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementOptions:
    """How a worker is to work: after those of these branches, with this model, within these limits, or only reading.

    What is left out is as its agent's own file says; limits only narrow what that says.
    """

    after: tuple[str, ...] = ()
    model: str = ""
    budget: Budget | None = None
    is_reader: bool = False


DEFAULT_OPTIONS = PlacementOptions()


class Placement(Protocol):
    """The way to workers, as a run sees it."""

    @property
    def is_worker(self) -> bool:
        """Whether the run is a worker's itself, and has a checkout of its own already."""
        ...

    async def send_worker(
        self,
        sent: WorkerSent,
        agent: Agent | None,
        others: Sequence[Agent],
        *,
        operation: str,
        options: PlacementOptions,
        restrictions: Permissions,
    ) -> None:
        """Have a worker begin, as this agent or as the usual one; where it has begun already, nothing is done.

        `held_to` is what whoever sends it must not do, or not without asking. Raises Mistake.
        """
        ...

    async def wait_for_result(self, run: str, *, idle: Idle = nullcontext) -> WorkerReturned:
        """How a worker ended; waits for it, `idle` while it waits itself: for its turn, or for a person."""
        ...

    async def poll_result(self, run: str) -> WorkerReturned | None:
        """How a worker ended; None while it has not."""
        ...

    async def describe_worker(self, run: str) -> str:
        """How a worker stands, in a line."""
        ...

    async def stop_workers(self, runs: Sequence[str]) -> None:
        """End workers that are not wanted any more."""
        ...
