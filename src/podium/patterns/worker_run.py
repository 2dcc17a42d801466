"""Run an agent in a worker: a separate process that works in another checkout.

The worker's result is the agent's answer, and the changes are on the worker's branch.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from anyio import create_task_group
from msgspec import structs

from ..core.journal_rows import compute_digest
from ..core.operation import Operation
from ..core.person_message import deliver_messages
from ..core.placement import DEFAULT_OPTIONS, Placement, Teammate, WorkerOptions
from ..core.scope import Scope
from ..values.agent import Agent, Permissions
from ..values.errors import AgentFailed, FailureKind, Mistake, find_first_error
from ..values.event import MessagesDelivered, Noticed, WorkerReturned, WorkerSent
from ..values.request import Answer, AttachedFile, Request, describe_outcome

BRANCH_PREFIX = "podium"
DEFAULT_BUDGET_SHARE = 0.25
"""The share of the remaining budget that a worker without its own budget gets. The rest is for other workers."""
UNSENT = "no worker could be sent"
"""The prefix of the error message for a worker that could not be started.

The prefix must not change, because it also identifies such errors on the timelines of existing runs."""


def runs_in_worker(op: Operation) -> bool:
    """Return whether to run the operation in a worker, because its agent or team needs its own checkout."""
    if op.placement is None:
        return False
    if op.parent is None:
        return _has_team_checkout(op.agent) and not op.placement.is_worker
    return op.agent.isolation != "shared" or _has_team_checkout(op.agent)


def _has_team_checkout(agent: Agent) -> bool:
    """Return whether the agent leads a team and, according to `worktrees`, works in a separate checkout."""
    return agent.team is not None and agent.team.options.get("worktrees") in ("team", "lead")


async def run_in_worker(op: Operation, request: Request) -> Answer:
    """Start a worker and return its answer. Raise AgentFailed if the worker does not succeed."""
    place = op.scope.child("worker")
    sent = place.find_outcome(WorkerSent)
    if sent is None:
        run = secrets.token_hex(6)
        share = 1.0 if op.parent is None else DEFAULT_BUDGET_SHARE
        sent = WorkerSent(
            run=run,
            branch=_make_branch_name(op, run),
            task=request.prompt(),
            budget=op.allowance.compute_worker_budget(op.agent.budget, share=share, agent=op.agent.name),
            is_shared=op.agent.isolation == "together",
        )
        place.record_outcome(sent)
    # A worker reads only its own mailbox, so messages to the agent that arrive before the worker starts are added to
    # its task.
    if said := await deliver_messages(place, op.agent.name):
        sent = structs.replace(sent, task=f"{sent.task}\n\n{said}")
    # This process runs the advisors and the handoff. The worker does only the agent's own work.
    own = structs.replace(op.agent, isolation="shared", advisors=None, handoff=None)
    returned = await run_worker_to_end(op, sent, own, options=op.worker_options)
    if returned.outcome != "succeeded":
        kind: FailureKind = "timed_out" if returned.outcome == "timed_out" else "failed"
        error = returned.error.removeprefix(f"{op.agent.name}: ")
        failed = op.make_error(kind, error or f"its worker {describe_outcome(returned.outcome)}").failure
        failed = structs.replace(failed, is_unknown_model=returned.is_unknown_model)
        raise AgentFailed(failed, so_far=returned.text)
    return Answer(text=returned.text)


def find_worker_result(op: Operation) -> tuple[WorkerSent, WorkerReturned] | None:
    """Return the worker that ran the operation, and its result. Return None if there is no worker or no result."""
    sent = op.scope.child("worker").find_outcome(WorkerSent)
    returned = None if sent is None else op.scope.child(f"worker:{sent.run}").find_outcome(WorkerReturned)
    return None if sent is None or returned is None else (sent, returned)


def _make_branch_name(op: Operation, run: str) -> str:
    """Return the name of the worker's branch, which is shared if the team's members work in one checkout."""
    name, suffix = op.agent.name, run[:4]
    if op.agent.isolation == "together":
        assert op.parent is not None
        name, suffix = op.parent.agent.name, f"members-{compute_digest(op.parent.scope.path)[:4]}"
    return f"{BRANCH_PREFIX}/{op.scope.timeline.run}/{name.replace(':', '-')}-{suffix}"


async def run_worker_to_end(
    op: Operation, sent: WorkerSent, agent: Agent, *, options: WorkerOptions = DEFAULT_OPTIONS
) -> WorkerReturned:
    """Start a recorded worker, wait until it ends, and return its result. The result is recorded once.

    Raise AgentFailed if the worker cannot start.
    """
    place = op.scope.child(f"worker:{sent.run}")
    if (known := place.find_outcome(WorkerReturned)) is not None:
        return known
    try:
        await start_worker(op, sent, agent, options=options)
    except AgentFailed as error:
        # Recording the result releases the budget that was reserved for the worker.
        place.record_outcome(WorkerReturned(run=sent.run, outcome="failed", error=error.failure.message))
        raise
    assert op.placement is not None
    try:
        async with create_task_group() as group:
            group.start_soon(_forward_messages, op, op.placement, place, sent.run)
            returned = await op.placement.wait_for_result(sent.run, idle=make_limit_pause(op))
            group.cancel_scope.cancel()
    except ExceptionGroup as errors:
        raise find_first_error(errors) from errors
    for text in returned.unread:
        place.record(Noticed(text=f"{op.agent.name} ended before it received the message: {text}"))
    return place.record_outcome(returned)


async def _forward_messages(op: Operation, placement: Placement, place: Scope, run: str) -> None:
    """Forward messages to the agents that work in a worker, which reads only its own mailbox."""
    timeline, own = op.scope.timeline, op.agent
    members = set(op.agents) if op.parent is None else {own.name} | _list_members(own)
    while True:
        for message in await timeline.index.messages.wait_messages(members.__contains__):
            found = ((one, timeline.links.read_attachment(one.digest)) for one in message.attachments)
            files = [AttachedFile(one, data) for one, data in found if data is not None]
            to = Teammate(name=message.to, run=run, agent=message.to)
            timeline.index.messages.offered.add(message.id)
            try:
                if not await placement.post_message(to, message, files):
                    return  # the worker has ended; the message waits for the agent's next task
                place.child(f"forwarded:{message.id}").record_outcome(MessagesDelivered(ids=(message.id,)))
            finally:
                timeline.index.messages.offered.discard(message.id)


def _list_members(agent: Agent) -> set[str]:
    return set() if agent.team is None else {member.name or member.agent for member in agent.team.members}


def make_limit_pause(op: Operation) -> Callable[[], AbstractContextManager[None]]:
    """Return a function that creates a context manager for pausing the operation's timeouts."""
    return partial(op.scope.timeline.work.timeouts.pause_timeouts, op.scope.path)


async def start_worker(
    op: Operation, sent: WorkerSent, agent: Agent | None, *, options: WorkerOptions = DEFAULT_OPTIONS
) -> None:
    """Start a recorded worker that runs `agent`, or the default agent. Raise AgentFailed if the worker cannot start."""
    assert op.placement is not None
    await op.scope.timeline.wait_written()
    try:
        await op.placement.send_worker(
            sent,
            agent,
            list(op.agents.values()),
            operation=op.scope.path,
            options=options,
            restrictions=Permissions(ask=op.rules.ask, deny=op.rules.deny),
        )
    except Mistake as error:
        raise op.make_error("failed", f"{UNSENT}: {error}") from error
