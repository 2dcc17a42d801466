"""Delegate tasks to workers for a run in this process, and wait for the results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path

from anyio import move_on_after, to_thread
from msgspec import structs

from ..core.budget import combine_strictest
from ..core.open_requests import RunRequests
from ..core.placement import Idle, Teammate, WorkerOptions
from ..files.discovery import load_roster
from ..files.model_role import resolve_models
from ..files.settings import Settings
from ..runs.assembly.engine_consent import require_consent
from ..runs.run_steering import forward_message, post_stop
from ..runs.runs import Runs
from ..store.follower import Follower
from ..store.reader import StoreReader
from ..store.worker_index import WorkerIndex
from ..values.actor import Actor
from ..values.agent import Agent, Permissions
from ..values.errors import Mistake
from ..values.event import (
    BlockerRaised,
    Entry,
    HandoverAsked,
    MessageReceived,
    MessagesDelivered,
    RunEnded,
    RunPaused,
    RunResumed,
    WorkCommitted,
    WorkerPlaced,
    WorkerReturned,
    WorkerSent,
)
from ..values.operation_path import parse_agent_name, parse_plan_step, parse_team_operation
from ..values.request import AttachedFile
from ..values.worker_task import DEFAULT_WORKER_AGENT, WorkerTask
from ..views.conversation_summary import summarise_conversation
from ..views.run_state.tree import RunView
from ..views.worker_state import list_checkout_work
from .commander_socket import commander_socket_path, is_commander_listening
from .delegation import NewWorker, delegate, start_commander
from .unfinished_workers import has_work

POLL_SECONDS = 5.0
"""How often to check whether a commander is running. No wakeup is sent when a commander dies."""

MAX_DEPTH = 3
"""The maximum nesting depth of workers."""


class LocalPlacement:
    """Starts workers for one run, in its repository and with its settings.

    The workers of an unattended run are unattended too.
    """

    def __init__(
        self,
        runs: Runs,
        settings: Settings,
        run: str,
        directory: Path,
        *,
        worker_task: WorkerTask | None,
        is_unattended: bool,
    ) -> None:
        self.is_worker = worker_task is not None and worker_task.has_checkout
        self.parent_operation = "" if worker_task is None else worker_task.operation
        self._runs = runs
        self._settings = settings
        self._run = run
        self._directory = directory
        self._worker_task = worker_task
        self._is_unattended = is_unattended
        self._store = runs.settings.store

    async def send_worker(
        self,
        sent: WorkerSent,
        agent: Agent | None,
        others: Sequence[Agent],
        *,
        operation: str,
        options: WorkerOptions,
        restrictions: Permissions,
    ) -> None:
        await to_thread.run_sync(self._must_not_be_too_deep)
        team = (
            [agent, *(one for one in others if one.name != agent.name)]
            if agent is not None
            else self._load_default_team()
        )
        first, *rest = (
            structs.replace(one, permissions=_add_restrictions(one.permissions, restrictions)) for one in team
        )
        if options.model:
            named = resolve_models(options.model, self._settings.models).models
            require_consent(named, self._settings, self._runs.provider_variables, chooser="the task")
        first = structs.replace(first, budget=combine_strictest(first.budget, options.budget))
        worker = NewWorker(
            at=self._directory,
            branch=sent.branch,
            task=sent.task,
            agent=(first, *rest),
            options=structs.replace(options, budget=None, is_unattended=self._is_unattended),
            parent=self._run,
            operation=operation,
            is_shared=sent.is_shared,
        )
        settings = structs.replace(self._settings, budget=sent.budget)
        by = Actor(name=_find_sender(operation, first), channel="agent")
        await delegate(self._runs, settings, worker, by=by, run=sent.run)

    def _must_not_be_too_deep(self) -> None:
        """Raise Mistake if a worker started by this run would be nested too deeply."""
        depth, worker_task = 0, self._worker_task
        with StoreReader(self._store) as reader:
            while worker_task is not None and worker_task.parent:
                depth += 1
                worker_task = reader.read_summary(worker_task.parent).started.errand
        if depth >= MAX_DEPTH:
            raise Mistake(f"workers can be nested at most {MAX_DEPTH} levels deep; do this work without another worker")

    def _load_default_team(self) -> list[Agent]:
        return list(load_roster(self._directory, self._runs.settings.home).resolve_team(DEFAULT_WORKER_AGENT))

    async def wait_for_result(self, run: str, *, idle: Idle = nullcontext) -> WorkerReturned:
        after, waiting = 0, IdleTracker(idle)
        try:
            while True:
                # A follower ends when the run is paused; keep waiting until it is resumed.
                with Follower(self._store, run, after) as entries:
                    while (entry := await self._next_entry(entries)) is not None:
                        after = entry.seq
                        waiting.apply_entry(entry)
                        if isinstance(entry.event, RunEnded):
                            return await to_thread.run_sync(self._load_result, run)
        finally:
            waiting.close()

    async def _next_entry(self, entries: Follower) -> Entry | None:
        """Return the next entry, or None after the last entry. If the commander has exited, start another commander."""
        while True:
            with move_on_after(POLL_SECONDS):
                return await anext(entries, None)
            await to_thread.run_sync(self._ensure_commander)

    def _ensure_commander(self) -> None:
        if not is_commander_listening(commander_socket_path(self._store)) and has_work(self._store):
            start_commander(self._runs.settings)

    async def poll_result(self, run: str) -> WorkerReturned | None:
        view = await to_thread.run_sync(self._load_run_view, run)
        return None if view.ended is None else await to_thread.run_sync(self._load_result, run)

    async def describe_worker(self, run: str) -> str:
        view = await to_thread.run_sync(self._load_run_view, run)
        if view.ended is not None:
            return str(view.ended.outcome)
        if view.requests.list_open(now=time.time()):
            return "waiting for a person"
        return "queued" if view.root is None else view.root.activity or "working"

    async def stop_workers(self, runs: Sequence[str]) -> None:
        for run in runs:
            by = Actor(name=f"run {self._run}", channel="agent")
            await to_thread.run_sync(partial(post_stop, self._store, run, by=by))

    async def list_teammates(self, team: str) -> list[Teammate]:
        return await to_thread.run_sync(self._find_teammates, team)

    def _find_teammates(self, team: str) -> list[Teammate]:
        run = self._worker_task.parent if self._worker_task is not None and self._worker_task.parent else self._run
        with StoreReader(self._store) as reader:
            agents = {agent.name: agent for agent in reader.read_summary(run).started.agents}
            lead = agents.get(parse_agent_name(team))
            members = lead.team.members if lead is not None and lead.team is not None else ()
            names = [member.name or member.agent for member in members] + ([lead.name] if lead is not None else [])
            found = {name: Teammate(name=name, run=run, agent=name) for name in names}
            for row in WorkerIndex(self._store).list_open():
                started = reader.read_summary(row.run).started
                task = started.errand
                if task is None or task.parent != run or parse_team_operation(task.operation) != team:
                    continue
                for name in (started.agent, task.worker_name):
                    found[name] = Teammate(name=name, run=row.run, agent=started.agent)
        return [one for one in found.values() if one.run != self._run or self._run == run]

    async def post_message(self, to: Teammate, message: MessageReceived, files: Sequence[AttachedFile] = ()) -> bool:
        return await to_thread.run_sync(partial(forward_message, self._store, to.run, message, files=files))

    def _load_run_view(self, run: str) -> RunView:
        with StoreReader(self._store) as reader:
            return RunView.from_entries(reader.read_entries(run))

    def _load_result(self, run: str) -> WorkerReturned:
        with StoreReader(self._store) as reader:
            entries = reader.read_entries(run)
        result = RunView.from_entries(entries).build_result()
        left = next((entry.event for entry in reversed(entries) if isinstance(entry.event, WorkCommitted)), None)
        placed = next((entry.event for entry in entries if isinstance(entry.event, WorkerPlaced)), None)
        signals = (entry.event for entry in reversed(entries) if isinstance(entry.event, HandoverAsked | BlockerRaised))
        assert entries[0].started.errand is not None
        first, *others = list_checkout_work(entries[0].started.errand, placed, left)
        text = result.text or "\n\n".join(part.text for part in result.parts if part.text)
        if left is not None:
            place = f"[on branch {left.branch} at {left.commit[:12]}: {', '.join(left.files) or 'nothing changed'}]"
            for one in (one for one in others if one.commit):
                place += f"\n[in {one.root} at {one.commit[:12]}: {', '.join(one.files) or 'nothing changed'}]"
            text = f"{text}\n\n{place}" if text else place
        return WorkerReturned(
            run=run,
            outcome=result.outcome,
            text=text,
            error=result.error or "",
            usage=result.usage,
            files=first.files,
            base=first.base,
            commit=first.commit,
            signal=next(signals, None),
            summary=_summarise_plan_step(entries),
            is_unknown_model=_failed_for_unknown_model(entries[-1]),
            unread=_list_unread_messages(entries),
            unproved=result.unproved or "",
        )


class IdleTracker:
    """Keeps a context manager entered while a worker is idle.

    A worker is idle if it has not started yet, is paused, or is waiting for answers.
    """

    def __init__(self, idle: Idle) -> None:
        self._idle = idle
        self._is_begun = False
        self._requests = RunRequests()
        self._open = ExitStack()
        self._open.enter_context(idle())
        self._is_waiting = True

    def apply_entry(self, entry: Entry) -> None:
        """Handle an entry from the worker's timeline."""
        self._requests.apply(entry)
        match entry.event:
            case RunResumed():
                self._is_begun = True
            case RunPaused():
                self._is_begun = False
        is_waiting = not self._is_begun or bool(self._requests.list_open(now=entry.at))
        if is_waiting and not self._is_waiting:
            self._open.enter_context(self._idle())
        elif self._is_waiting and not is_waiting:
            self._open.close()
        self._is_waiting = is_waiting

    def close(self) -> None:
        """Exit the context manager if it has been entered."""
        self._open.close()


def _summarise_plan_step(entries: Sequence[Entry]) -> str:
    """Return a summary of the work on a plan step, for the step's next owner.

    If the run is not for a plan step, return an empty string.
    """
    started = entries[0].started
    if started.errand is None or not parse_plan_step(started.errand.operation):
        return ""
    return summarise_conversation(entries, started.agent)


def _failed_for_unknown_model(last: Entry) -> bool:
    failure = last.event.failure if isinstance(last.event, RunEnded) else None
    return failure is not None and failure.is_unknown_model


def _list_unread_messages(entries: Sequence[Entry]) -> tuple[str, ...]:
    delivered = {id for entry in entries if isinstance(entry.event, MessagesDelivered) for id in entry.event.ids}
    received = (entry.event for entry in entries if isinstance(entry.event, MessageReceived))
    return tuple(message.text for message in received if message.id not in delivered)


def _find_sender(operation: str, agent: Agent) -> str:
    """Return the name of the agent that sends a worker: of this operation or, if the worker does it, of its parent."""
    name = parse_agent_name(operation)
    return parse_agent_name(parse_team_operation(operation)) if name == agent.name else name


def _add_restrictions(own: Permissions | None, restrictions: Permissions) -> Permissions:
    """Return an agent's own rules combined with the restrictions of the agent that delegates to it."""
    own = own or Permissions()
    return Permissions(allow=own.allow, ask=(*own.ask, *restrictions.ask), deny=(*own.deny, *restrictions.deny))
