"""The way to workers for a run of this process: what it sends is delegated like anything else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path

from anyio import move_on_after, to_thread
from msgspec import structs

from ..app import App
from ..core.budget import tightest
from ..core.placement import Idle, Wanted
from ..roster.discovery import load
from ..setup.settings import Settings
from ..store.follower import Follower
from ..store.sqlite.mailbox import post
from ..store.sqlite.reader import Reader
from ..values.agent import Agent, Permissions
from ..values.errors import Mistake
from ..values.event import (
    Entry,
    Event,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
    RunPaused,
    RunResumed,
    StopAsked,
    WorkCommitted,
    WorkerReturned,
    WorkerSent,
)
from ..values.worker_task import Errand
from ..views.run_view import Picture
from .commander_socket import is_answered, socket_path
from .delegate import delegate, start_commander
from .key_promise import promised
from .unfinished_workers import began, has_work
from .worker_options import Terms, suited

AGENT = "worker"
"""Who is sent where nobody is named."""

LOOK_SECONDS = 5.0
"""How often to look whether there is a commander; its death does not ring."""

DEEPEST = 3
"""How many workers may stand above one another."""


class Sending:
    """Workers of one run, in the repository that it works in and with the settings that it has.

    Where nobody is asked what its own agents want, nobody is asked what they want.
    """

    def __init__(
        self,
        app: App,
        settings: Settings,
        run: str,
        directory: Path,
        *,
        errand: Errand | None,
        is_unattended: bool,
    ) -> None:
        self.is_worker = errand is not None and errand.has_checkout
        self._app = app
        self._settings = settings
        self._run = run
        self._directory = directory
        self._errand = errand
        self._is_unattended = is_unattended
        self._store = app.settings.store

    async def send(
        self,
        sent: WorkerSent,
        agent: Agent | None,
        others: Sequence[Agent],
        *,
        operation: str,
        wanted: Wanted,
        held_to: Permissions,
    ) -> None:
        await to_thread.run_sync(self._must_not_be_too_deep)
        team = [agent, *(one for one in others if one.name != agent.name)] if agent is not None else self._usual()
        first, *rest = (structs.replace(one, permissions=_narrowed(one.permissions, held_to)) for one in team)
        terms = Terms(model=wanted.model or None, is_reader=wanted.is_reader)
        first = suited(structs.replace(first, budget=tightest(first.budget, wanted.budget)), terms, self._settings)
        settings = structs.replace(self._settings, budget=sent.budget)
        if wanted.is_reader:
            settings = structs.replace(settings, permission_mode="plan")  # for all of its team
        with promised(self._store, sent.run) as promise:
            await delegate(
                self._app,
                first,
                sent.task,
                at=self._directory,
                branch=sent.branch,
                follows=wanted.after,
                parent=self._run,
                operation=operation,
                is_reader=wanted.is_reader,
                is_shared=sent.is_shared,
                is_unattended=self._is_unattended,
                run=sent.run,
                settings=settings,
                agents=rest,
            )
            # A worker has its keys from its commander, and not in its environment.
            environ = {**os.environ, **self._app.keys}
            await to_thread.run_sync(partial(start_commander, self._app.settings, environ, promise=promise))

    def _must_not_be_too_deep(self) -> None:
        """Workers may send workers, but not without end. Raises Mistake."""
        depth, errand = 0, self._errand
        with Reader(self._store) as reader:
            while errand is not None and errand.parent:
                depth += 1
                errand = began(reader.summary(errand.parent)).errand
        if depth >= DEEPEST:
            raise Mistake(f"workers send workers no more than {DEEPEST} deep; do this part without another one")

    def _usual(self) -> list[Agent]:
        return list(load(self._directory, self._app.settings.home).team(AGENT))

    async def returned(self, run: str, *, idle: Idle = nullcontext) -> WorkerReturned:
        after, waiting = 0, Waiting(idle)
        try:
            while True:
                # A follower ends where the run is paused; whoever resumes that is waited for.
                with Follower(self._store, run, after) as entries:
                    while (entry := await self._next(entries)) is not None:
                        after = entry.seq
                        waiting.hear(entry.event)
                        if isinstance(entry.event, RunEnded):
                            return await to_thread.run_sync(self._result, run)
        finally:
            waiting.end()

    async def _next(self, entries: Follower) -> Entry | None:
        """The next entry, None after the last; where their commander is gone meanwhile, there will be another."""
        while True:
            with move_on_after(LOOK_SECONDS):
                return await anext(entries, None)
            await to_thread.run_sync(self._see_to_a_commander)

    def _see_to_a_commander(self) -> None:
        if not is_answered(socket_path(self._store)) and has_work(self._store):
            start_commander(self._app.settings)

    async def ended(self, run: str) -> WorkerReturned | None:
        picture = await to_thread.run_sync(self._picture, run)
        return None if picture.ended is None else await to_thread.run_sync(self._result, run)

    async def standing(self, run: str) -> str:
        picture = await to_thread.run_sync(self._picture, run)
        if picture.ended is not None:
            return str(picture.ended.outcome)
        if picture.waiting:
            return "waiting for a person"
        return "queued" if picture.root is None else picture.root.doing or "working"

    async def call_back(self, runs: Sequence[str]) -> None:
        for run in runs:
            await to_thread.run_sync(post, self._store, run, StopAsked(by=f"run {self._run}"))

    def _picture(self, run: str) -> Picture:
        with Reader(self._store) as reader:
            return Picture.of(reader.entries(run))

    def _result(self, run: str) -> WorkerReturned:
        with Reader(self._store) as reader:
            entries = reader.entries(run)
        result = Picture.of(entries).result()
        left = next((entry.event for entry in reversed(entries) if isinstance(entry.event, WorkCommitted)), None)
        text = result.text or "\n\n".join(part.text for part in result.parts if part.text)
        if left is not None:
            text = f"{text}\n\n[on branch {left.branch} at {left.commit[:12]}: {', '.join(left.files) or 'no changes'}]"
        return WorkerReturned(
            run=run,
            outcome=result.outcome,
            text=text,
            error=result.error or "",
            usage=result.usage,
            files=() if left is None else left.files,
        )


class Waiting:
    """Keeps a block open while a worker waits: for its turn, for who resumes it, or for answers."""

    def __init__(self, idle: Idle) -> None:
        self._idle = idle
        self._is_begun = False
        self._asked: set[str] = set()
        self._open = ExitStack()
        self._open.enter_context(idle())
        self._is_waiting = True

    def hear(self, event: Event) -> None:
        """Take in an entry of the worker's."""
        match event:
            case RunResumed():
                self._is_begun = True
            case RunPaused():
                self._is_begun = False
            case PermissionAsked(id=id) | QuestionAsked(id=id):
                self._asked.add(id)
            case PermissionAnswered(id=id) | QuestionAnswered(id=id):
                self._asked.discard(id)
        is_waiting = not self._is_begun or bool(self._asked)
        if is_waiting and not self._is_waiting:
            self._open.enter_context(self._idle())
        elif self._is_waiting and not is_waiting:
            self._open.close()
        self._is_waiting = is_waiting

    def end(self) -> None:
        """Wait no more."""
        self._open.close()


def _narrowed(own: Permissions | None, held_to: Permissions) -> Permissions:
    """What an agent is held to, and what whoever sends it is."""
    own = own or Permissions()
    return Permissions(allow=own.allow, ask=(*own.ask, *held_to.ask), deny=(*own.deny, *held_to.deny))
