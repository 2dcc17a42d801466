"""Steer a run: send a message to an agent, pause or stop the run and wait for that, or change its budget or a member.

Each act records who asked for it, and through which interface. An act applies to a run of any process: it is posted to
the run's mailbox, which the process that works on the run reads. The functions whose names start with `post_` are for
the process that works on the run itself, or on the run that started it, and knows that the run has not ended.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from anyio import move_on_after, to_thread

from ..store.follower import Follower
from ..store.mailbox import post_to_mailbox
from ..store.reader import RunSummary, StoreReader
from ..store.worker_index import WorkerIndex
from ..values.actor import Actor, act
from ..values.agent import Agent, Budget, collect_agent_names, format_limits
from ..values.errors import Mistake, NoSuchRun, RunHeld
from ..values.event import (
    KINDS,
    BudgetChanged,
    MemberChanged,
    MessageReceived,
    OperationEnded,
    OperationStarted,
    PauseAsked,
    RunEnded,
    RunPaused,
    StopAsked,
)
from ..values.phase import Phase
from ..values.plain_text import join_words
from ..values.request import AttachedFile, replace_surrogates
from ..values.store_address import StoreAddress
from ..views.run_state.sent_workers import SentWorkers
from .assembly.preflight import require_not_ended, validate_budget
from .queries.run_lookup import resolve_recipient
from .queries.team_states import StateReader
from .runs import Runs

POLL_SECONDS = 1.0


MOST_LEVELS = 10
"""How many levels of nested workers are searched for an agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message to an agent of a run, by default to its first agent. A message with a known `ref` is not sent again."""

    text: str
    agent: str = ""
    files: Sequence[AttachedFile] = ()
    ref: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberChange:
    """A new model or prompt for a member of a run's team. What is empty does not change."""

    member: str
    model: str = ""
    prompt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steered:
    """The run that an act applies to, and a message for the user.

    `is_pending` means that the process that works on the run still has to handle the request.
    """

    run: str
    text: str
    is_pending: bool


# Messages
@act("act")
def send_message(store: StoreAddress, summary: RunSummary, message: NewMessage, *, by: Actor) -> Steered:
    """Send a message to an agent of a run.

    If the agent works in a worker of this run, the message is sent to the worker's run. Raise Mistake if the run has
    ended, has no such agent, or ended before it took the message.
    """
    to = resolve_recipient(summary, message.agent)
    with StoreReader(store) as reader:
        receiver = _find_receiver(reader, summary, to)
    if not post_message(store, receiver.id, to, message, by=by):
        raise Mistake(f"{to} did not receive the message: run {receiver.id} ended before it could be delivered")
    state = receiver.phase
    place = "" if receiver.id == summary.id else f", in run {receiver.id}"
    text = _describe_delivery(store, receiver.id, to, state, place=place)
    return Steered(run=summary.id, text=text, is_pending=state == "running")


def _describe_delivery(store: StoreAddress, run: str, to: str, state: Phase, *, place: str) -> str:
    """Describe when an agent receives a message that was posted to a run in this state."""
    if state == "queued":
        return f"{to} will receive the message when its worker starts{place}"
    if state != "running":
        return f"run {run} is not running; the message will be delivered when you resume it: podium resume {run}"
    with StoreReader(store) as reader:
        has_finished = _has_finished(reader, run, to)
    if has_finished:
        return f"{to} has finished its task, so it will receive the message only if it gets another one{place}"
    return f"{to} will receive the message with its next model call{place}"


@act("act")
def post_message(store: StoreAddress, run: str, to: str, message: NewMessage, *, by: Actor) -> bool:
    """Post a message for an agent to a run, which forwards it if the agent works in a worker.

    Return False if the run ended before it took the message. The ref of a message is kept apart from those of answers,
    which are the ids of requests: a message must not take the place of an answer.
    """
    received = MessageReceived(
        id=secrets.token_hex(6),
        to=to,
        text=replace_surrogates(message.text),
        attachments=tuple(one.attachment for one in message.files),
    ).with_actor(by)
    ref = f"client:{message.ref}" if message.ref else ""
    return forward_message(store, run, received, files=message.files, ref=ref)


def forward_message(
    store: StoreAddress, run: str, message: MessageReceived, *, files: Sequence[AttachedFile] = (), ref: str = ""
) -> bool:
    """Post a message as it was sent to a run, unless a message with this `ref`, by default its id, was posted before.

    Return False if the run ended before it took the message: nobody receives it.
    """
    ref = ref or f"message:{message.id}"
    post_to_mailbox(store, run, message, ref=ref, files=files)
    with StoreReader(store) as reader:
        return not reader.read_summary(run).is_over or reader.is_message_taken(run, ref)


# Pausing and stopping
@act("act")
async def pause_run(runs: Runs, run: str, *, by: Actor) -> Steered:
    """Pause a run. If a process is working on it, its current steps finish first. Raise Mistake if it has ended."""
    store = runs.settings.store
    summary = await to_thread.run_sync(_read_summary, store, run)
    state = summary.phase
    if summary.is_over:
        raise Mistake(f"run {run} has ended ({state}) and cannot be paused")
    if state == "paused":
        text = f"run {run} is already paused; continue it with: podium resume {run}"
        return Steered(run=run, text=text, is_pending=False)
    if state != "running":
        with suppress(RunHeld):  # a process has claimed it in the meantime
            await runs.pause(run, PauseAsked().with_actor(by), by=by)
            text = f"run {run} is paused; continue it with: podium resume {run}"
            return Steered(run=run, text=text, is_pending=False)
    await to_thread.run_sync(lambda: post_pause(store, run, by=by))
    return Steered(run=run, text=f"pausing run {run}; its current steps finish first", is_pending=True)


@act("act")
def post_pause(store: StoreAddress, run: str, *, by: Actor) -> None:
    """Ask the process that works on a run to pause it."""
    post_to_mailbox(store, run, PauseAsked().with_actor(by))


@act("act")
async def stop_run(runs: Runs, run: str, *, by: Actor) -> Steered:
    """Stop a run and keep its partial results. If no process is working on it, this process ends it.

    Raise RunOver if the run has already ended, and StoreFailed if this process cannot end it.
    """
    store = runs.settings.store
    summary = await to_thread.run_sync(_read_summary, store, run)
    require_not_ended(run, summary.last)
    await to_thread.run_sync(lambda: post_stop(store, run, by=by))
    is_ended = await runs.end_stopped(run, by=by)
    if is_ended and summary.is_worker:
        # A commander would also record this, but may not be running.
        await to_thread.run_sync(WorkerIndex(store).mark_closed, run)
    return Steered(run=run, text=f"stopping run {run}", is_pending=not is_ended)


@act("act")
def post_stop(store: StoreAddress, run: str, *, by: Actor) -> None:
    """Ask the process that works on a run to stop it. A run that has ended does not change."""
    post_to_mailbox(store, run, StopAsked().with_actor(by))


# Changes
@act("act")
def change_budget(store: StoreAddress, summary: RunSummary, limits: Budget, *, by: Actor) -> Steered:
    """Change limits of a run; limits that are not set do not change. Raise Mistake if a limit cannot be changed.

    Only the process that works on the run knows whether it can enforce the limits. If it cannot, it records a notice.
    """
    run, state = summary.id, summary.phase
    if limits == Budget():
        raise Mistake("the budget has no limits; give at least one, such as usd")
    validate_budget(limits)
    if summary.is_over:
        retry = f"retry it with: podium retry {run} --budget LIMITS"
        again = "delegate its task again" if summary.is_worker else retry
        raise Mistake(f"run {run} has ended ({state}) and cannot be resumed, so its budget cannot be changed; {again}")
    post_to_mailbox(store, run, BudgetChanged(budget=limits).with_actor(by))
    if state != "running":
        when = f"when it is resumed with podium resume {run}"
        text = f"run {run} is not running; {format_limits(limits)} will apply {when}"
        return Steered(run=run, text=text, is_pending=False)
    text = f"new limits were sent to run {run}; they apply {describe_effective_time(limits)}"
    return Steered(run=run, text=text, is_pending=True)


def describe_effective_time(limits: Budget) -> str:
    """Describe when new limits take effect: a time limit immediately, other limits from the next model call."""
    if limits.seconds is None:
        return "from the next model call"
    return (
        "immediately"
        if limits == Budget(seconds=limits.seconds)
        else "from the next model call, except the time limit, which applies immediately"
    )


@act("act")
def change_member(store: StoreAddress, summary: RunSummary, change: MemberChange, *, by: Actor) -> Steered:
    """Change the model or the prompt of a member of a run, starting with its next task.

    Raise Mistake if the run has ended or has no such member, or if the member is the run's first agent. Only the
    process that works on the run knows whether the model is available. If it is not, it records a notice.
    """
    to = resolve_recipient(summary, change.member)
    _require_not_first_agent(to, summary)
    changed = MemberChanged(member=to, model=change.model, prompt=replace_surrogates(change.prompt))
    post_to_mailbox(store, summary.id, changed.with_actor(by))
    is_running = summary.phase == "running"
    when = "starting with its next task" if is_running else f"when it is resumed with podium resume {summary.id}"
    return Steered(run=summary.id, text=f"changed: {to} in run {summary.id}, {when}", is_pending=is_running)


def _require_not_first_agent(name: str, summary: RunSummary) -> None:
    """Raise Mistake if `name` is the run's first agent, whose only operation has already started."""
    started = summary.started
    if name != started.agent:
        return
    others = [one for one in collect_agent_names(started.agents) if one != name]
    instead = f"you can change {join_words(others)}" if others else "edit its file and start another run"
    raise Mistake(f"{name} has already started its only operation in run {summary.id} and cannot be changed; {instead}")


# Receivers
class _OpenWorker(NamedTuple):
    """A worker that has not ended. `operation` is the operation of whose agent it does the work, if it does that."""

    run: RunSummary
    agent: Agent
    operation: str

    def includes(self, agent: str) -> bool:
        """Return whether an agent works in this worker: it leads its team or does the work of the whole run."""
        members = () if self.agent.team is None else self.agent.team.members
        is_whole_run = bool(self.operation) and "/" not in self.operation
        return is_whole_run or any(agent == (one.name or one.agent) for one in members)


def _find_receiver(reader: StoreReader, summary: RunSummary, agent: str, levels: int = MOST_LEVELS) -> RunSummary:
    """Return the run in which an agent works: a worker of this run, a worker of that worker, or this run itself."""
    workers = _list_open_workers(reader, summary.id)
    if not workers or not levels:
        return summary
    is_elsewhere = _has_finished(reader, summary.id, agent) is not False
    for worker in reversed(workers):
        if worker.agent.name == agent and (worker.operation or is_elsewhere):
            return _find_receiver(reader, worker.run, agent, levels - 1)
    for worker in workers:
        found = _find_receiver(reader, worker.run, agent, levels - 1)
        if found.id != worker.run.id or worker.includes(agent):
            return found
    return summary


def _list_open_workers(reader: StoreReader, run: str) -> list[_OpenWorker]:
    """Return the workers that a run started and that have not ended, oldest first."""
    workers = []
    for sent in StateReader(SentWorkers).read(reader, run).list_open():
        with suppress(NoSuchRun):  # it is being started; this run forwards messages to it once it has started
            worker = reader.read_summary(sent.run)
            if not worker.is_over:
                agent = next(one for one in worker.started.agents if one.name == worker.started.agent)
                workers.append(_OpenWorker(worker, agent, sent.operation))
    return workers


def _has_finished(reader: StoreReader, run: str, agent: str) -> bool | None:
    """Return whether all operations of an agent in this run have ended, or None if it had none."""
    entries = reader.read_entries(run, kinds=(KINDS[OperationStarted], KINDS[OperationEnded]))
    ended = {entry.operation for entry in entries if isinstance(entry.event, OperationEnded)}
    started = (entry for entry in entries if isinstance(entry.event, OperationStarted) and entry.event.agent == agent)
    own = [entry.operation in ended for entry in started]
    return all(own) if own else None


def _read_summary(store: StoreAddress, run: str) -> RunSummary:
    with StoreReader(store) as reader:
        return reader.read_summary(run)


async def wait_for_end_or_pause(store: StoreAddress, run: str) -> RunEnded | RunPaused | None:
    """Wait for the event that ends or pauses a run, and return it. Return None if no process is working on it."""
    with StoreReader(store) as reader:
        while True:
            summary = await to_thread.run_sync(reader.read_summary, run)
            if isinstance(summary.last.event, RunEnded | RunPaused):
                return summary.last.event
            if summary.phase in ("queued", "resumable"):
                return None
            # New entries wake this process, but the exit of the run's process does not, so poll for that.
            with move_on_after(POLL_SECONDS), Follower(store, run, summary.last.seq) as entries:
                async for entry in entries:
                    if isinstance(entry.event, RunEnded | RunPaused):
                        break
