"""Steer a run: send a message to an agent, pause the run, or change its budget."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from anyio import to_thread

from ..store.mailbox import post_to_mailbox
from ..store.reader import RunSummary, StoreReader
from ..system.username import get_local_actor
from ..values.agent import Agent, Budget
from ..values.attachment import AttachedFile
from ..values.errors import Mistake, NoSuchRun, RunHeld
from ..values.event import (
    KINDS,
    BudgetChanged,
    MessageReceived,
    OperationEnded,
    OperationStarted,
    PauseAsked,
    RunStarted,
    WorkerReturned,
    WorkerSent,
    decode_entry,
)
from ..values.store_address import StoreAddress
from .run_launcher import RunLauncher
from .run_lookup import derive_run_state, is_over, is_worker_run, resolve_recipient

MOST_LEVELS = 10
"""How many levels of nested workers are searched for an agent."""


def send_message(
    store: StoreAddress,
    summary: RunSummary,
    agent: str,
    text: str,
    *,
    by: str = "",
    files: Sequence[AttachedFile] = (),
    ref: str = "",
) -> str:
    """Send a message to an agent of a run, by default the first agent, and return a confirmation for the user.

    If the agent works in a worker of this run, the message is sent to the worker's run. A message with a known `ref` is
    not sent again. The ref is kept apart from those of answers, which are the ids of requests: a message must not take
    the place of an answer.

    Raise Mistake if the run has ended, has no such agent, or ended before it took the message.
    """
    to = resolve_recipient(summary, agent)
    with StoreReader(store) as reader:
        receiver = _find_receiver(reader, summary, to)
    attachments = tuple(one.attachment for one in files)
    message = MessageReceived(id=secrets.token_hex(6), to=to, text=text, by=by, attachments=attachments)
    if not post_if_open(store, receiver.id, message, files=files, ref=f"client:{ref}" if ref else ""):
        raise Mistake(f"{to} did not receive the message: run {receiver.id} ended before it could be delivered")
    place = "" if receiver.id == summary.id else f", in run {receiver.id}"
    match derive_run_state(receiver):
        case "running":
            with StoreReader(store) as reader:
                has_finished = _has_finished(reader, receiver.id, to)
            if has_finished:
                return f"{to} has finished its task, so it will receive the message only if it gets another one{place}"
            return f"{to} will receive the message with its next model call{place}"
        case "queued":
            return f"{to} will receive the message when its worker starts{place}"
    return (
        f"run {receiver.id} is not running; the message will be delivered when you resume it: "
        f"podium resume {receiver.id}"
    )


def post_if_open(
    store: StoreAddress, run: str, message: MessageReceived, *, files: Sequence[AttachedFile] = (), ref: str = ""
) -> bool:
    """Post a message to a run, unless a message with this `ref`, by default its id, has already been posted.

    Return False if the run ended before it took the message: nobody receives it.
    """
    ref = ref or f"message:{message.id}"
    post_to_mailbox(store, run, message, ref=ref, files=files)
    with StoreReader(store) as reader:
        return not is_over(reader.read_summary(run)) or reader.is_message_taken(run, ref)


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
    rows = reader.read_rows_of_kinds(run, (KINDS[WorkerSent], KINDS[WorkerReturned]))
    entries = [decode_entry(row.line) for row in rows]
    returned = {entry.event.run for entry in entries if isinstance(entry.event, WorkerReturned)}
    workers = []
    for entry in entries:
        if isinstance(entry.event, WorkerSent) and entry.event.run not in returned:
            with suppress(NoSuchRun):  # it is being started; this run forwards messages to it once it has started
                worker = reader.read_summary(entry.event.run)
                started = worker.first.event
                if isinstance(started, RunStarted) and not is_over(worker):
                    agent = next(one for one in started.agents if one.name == started.agent)
                    is_own_work = entry.scope == f"{entry.operation}/worker"
                    workers.append(_OpenWorker(worker, agent, entry.operation if is_own_work else ""))
    return workers


def _has_finished(reader: StoreReader, run: str, agent: str) -> bool | None:
    """Return whether all operations of an agent in this run have ended, or None if it had none."""
    rows = reader.read_rows_of_kinds(run, (KINDS[OperationStarted], KINDS[OperationEnded]))
    entries = [decode_entry(row.line) for row in rows]
    ended = {entry.operation for entry in entries if isinstance(entry.event, OperationEnded)}
    started = (entry for entry in entries if isinstance(entry.event, OperationStarted) and entry.event.agent == agent)
    own = [entry.operation in ended for entry in started]
    return all(own) if own else None


async def pause_run(launcher: RunLauncher, run: str, *, by: str = "") -> str:
    """Pause a run and return a message for the user. If it is running, its current steps finish first.

    Raise Mistake if the run has ended.
    """
    store = launcher.settings.store
    summary = await to_thread.run_sync(_read_summary, store, run)
    if is_over(summary):
        raise Mistake(f"run {run} has ended ({derive_run_state(summary)}) and cannot be paused")
    if derive_run_state(summary) == "paused":
        return f"run {run} is already paused; continue it with: podium resume {run}"
    if derive_run_state(summary) != "running":
        try:
            await launcher.pause_run(run, by=get_local_actor("api", by))
        except RunHeld:
            pass  # a process has claimed it in the meantime
        else:
            return f"run {run} is paused; continue it with: podium resume {run}"
    await to_thread.run_sync(post_to_mailbox, store, run, PauseAsked(by=by))
    return f"pausing run {run}; its current steps finish first"


def post_budget_change(store: StoreAddress, summary: RunSummary, limits: Budget, *, by: str = "") -> BudgetChanged:
    """Request new limits for a run, and return the request. Raise Mistake if the run has ended."""
    if is_over(summary):
        again = (
            "delegate its task again"
            if is_worker_run(summary)
            else f"retry it with: podium retry {summary.id} --budget LIMITS"
        )
        raise Mistake(
            f"run {summary.id} has ended ({derive_run_state(summary)}) and cannot be resumed, so its budget cannot "
            f"be changed; {again}"
        )
    change = BudgetChanged(budget=limits, by=by)
    post_to_mailbox(store, summary.id, change)
    return change


def _read_summary(store: StoreAddress, run: str) -> RunSummary:
    with StoreReader(store) as reader:
        return reader.read_summary(run)
