"""Away: an agent's part is done by a worker, in a process and a checkout of its own.

It composes like any other way of working: what comes back is the agent's answer, and its changes are on a
branch that the answer names.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from msgspec import structs

from ..core.operation import Operation
from ..core.placement import AS_EVER, Wanted
from ..core.timeline import digest
from ..values.agent import Agent, Permissions
from ..values.errors import Failed, FailureKind, Mistake
from ..values.event import WorkerReturned, WorkerSent
from ..values.request import Answer, Request

PREFIX = "podium"
SHARE = 0.25
"""How much of what is left a worker may use that has no budget of its own: others may be sent, too."""
UNSENT = "no worker could be sent"


def is_away(op: Operation) -> bool:
    """Whether an operation is a worker's: its agent or team wants a checkout of its own, and there is a way to one."""
    if op.placement is None:
        return False
    if op.parent is None:
        return goes_as_one(op.agent) and not op.placement.is_worker
    return op.agent.isolation != "shared" or goes_as_one(op.agent)


def goes_as_one(agent: Agent) -> bool:
    """Whether a team has a checkout for itself as a whole."""
    return agent.team is not None and agent.team.options.get("worktrees") in ("team", "lead")


async def away(op: Operation, request: Request) -> Answer:
    """What a worker answers. Raises Failed."""
    place = op.scope.at("worker")
    sent = place.recall(WorkerSent)
    if sent is None:
        run = secrets.token_hex(6)
        share = 1.0 if op.parent is None else SHARE
        sent = WorkerSent(
            run=run,
            branch=_branch(op, run),
            task=request.prompt(),
            budget=op.allowance.loan(op.agent.budget, share=share, agent=op.agent.name),
            is_shared=op.agent.isolation == "together",
        )
        place.settle(sent)
    # Advice and handoff are this side's; the worker does the agent's own part.
    own = structs.replace(op.agent, isolation="shared", advisors=None, handoff=None)
    returned = await fetched(op, sent, own)
    if returned.outcome != "succeeded":
        kind: FailureKind = "timed_out" if returned.outcome == "timed_out" else "failed"
        raise op.failed(kind, returned.error or f"its worker was {returned.outcome}", so_far=returned.text)
    return Answer(text=returned.text)


def _branch(op: Operation, run: str) -> str:
    """The branch of a worker: one of its own, or that of its team's members where they share theirs."""
    name, suffix = op.agent.name, run[:4]
    if op.agent.isolation == "together":
        assert op.parent is not None
        name, suffix = op.parent.agent.name, f"members-{digest(op.parent.scope.path)[:4]}"
    return f"{PREFIX}/{op.scope.timeline.run}/{name.replace(':', '-')}-{suffix}"


async def fetched(op: Operation, sent: WorkerSent, agent: Agent) -> WorkerReturned:
    """What comes of a worker that was sent, recorded once."""
    place = op.scope.at(f"worker:{sent.run}")
    if (known := place.recall(WorkerReturned)) is not None:
        return known
    try:
        await begun(op, sent, agent)
    except Failed as error:
        # What was kept for it is free again.
        place.settle(WorkerReturned(run=sent.run, outcome="failed", error=error.failure.message))
        raise
    assert op.placement is not None
    return place.settle(await op.placement.returned(sent.run, idle=waiting(op)))


def waiting(op: Operation) -> Callable[[], AbstractContextManager[None]]:
    """A block in which the limits of an operation stand still."""
    return partial(op.scope.timeline.clock.waiting, op.scope.path)


async def begun(op: Operation, sent: WorkerSent, agent: Agent | None, *, wanted: Wanted = AS_EVER) -> None:
    """Have the worker begin that is written down, as this agent or as any worker. Raises Failed where it cannot."""
    assert op.placement is not None
    await op.scope.timeline.settled()
    try:
        await op.placement.send(
            sent,
            agent,
            list(op.agents.values()),
            operation=op.scope.path,
            wanted=wanted,
            held_to=Permissions(ask=op.rules.ask, deny=op.rules.deny),
        )
    except Mistake as error:
        raise op.failed("failed", f"{UNSENT}: {error}") from error
