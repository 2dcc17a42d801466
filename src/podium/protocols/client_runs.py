"""Work on the runs that the clients of a protocol server start, each in a background task of the server.

A run belongs to the request that started it: if the client cancels the request or disconnects, the run is stopped. If
the server stops, its runs are interrupted and can be resumed. Permission requests and questions are in the inbox, like
those of other runs.

The person at the client is asked, too. The first answer counts: when somebody answers elsewhere, the client's prompt is
withdrawn. If the client cannot ask, or the person gives no answer, the request stays in the inbox.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Unpack

from anyio import CancelScope, Event, create_task_group, sleep, to_thread
from anyio.abc import TaskGroup
from msgspec import structs

from ..app import App, RunOptions
from ..core.open_requests import Asked
from ..files.settings import Settings
from ..runs.answers import NewAnswer, answer_request, get_shown
from ..runs.queries.request_details import WorkerRequestWatcher
from ..runs.run_handle import Run
from ..runs.run_notifications import follow_with_notices
from ..runs.run_start import start_run
from ..store.follower import Follower
from ..values.actor import Actor
from ..values.errors import AlreadyAnswered, Mistake, OutsideFailed, PodiumError, find_first_error
from ..values.event import (
    Decision,
    Entry,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    WorkerSent,
)
from ..values.operation_path import parse_agent_name
from ..values.request import Result, describe_outcome
from ..values.store_address import StoreAddress
from ..views.request_text import escape_hidden_text, escape_in_line, format_request_lines

SETTLE_SECONDS = 0.2
"""How long a request must be open before it is sent to the client.

Rules answer many requests immediately, and those requests are never sent.
"""
DECISIONS: dict[str, Decision] = {"once": "once", "run": "run", "deny": "deny"}
"""The decisions that a client can make about a permission request, keyed by name. A client cannot save rules."""
AskClient = Callable[[Entry, Asked, str], Awaitable[str | None]]
"""Shows a request, as text, to the client's user.

Returns a key of DECISIONS or the answer to a question, or None if the user does not answer.
"""


class ClientRequests:
    """Shows the requests from one run and its workers to a client's user, and sends the answers to the run.

    `tasks` is the task group in which requests are sent to the client. The caller cancels it to stop sending requests.
    """

    def __init__(self, tasks: TaskGroup, store: StoreAddress, run: str, ask: AskClient, *, by: Actor) -> None:
        self._tasks = tasks
        self._store = store
        self._by = by
        self._watcher = WorkerRequestWatcher(store, self, sent_by=run)
        self._is_watching = False
        self._ask_client = ask
        self._open: dict[str, CancelScope] = {}

    def handle_entry(self, entry: Entry, worker: str = "") -> None:
        """Handle an entry of the run, or a request from one of its workers."""
        match entry.event:
            case PermissionAsked() | QuestionAsked() as asked if asked.id not in self._open:
                self._open[asked.id] = CancelScope()
                self._tasks.start_soon(self._ask, entry, asked, worker)
            case PermissionAnswered(id=id) | QuestionAnswered(id=id):
                self.withdraw_request(id, "")
            case WorkerSent():
                self.watch_workers()

    def watch_workers(self) -> None:
        """Start handling the requests from the run's workers, unless they are already being handled."""
        if not self._is_watching:
            self._is_watching = True
            self._tasks.start_soon(self._watcher.watch_requests)

    def withdraw_request(self, id: str, how: str) -> None:
        """Stop asking about a request that is no longer open."""
        if id in self._open:
            self._open[id].cancel()

    async def _ask(self, entry: Entry, asked: Asked, worker: str) -> None:
        with self._open[asked.id]:
            await sleep(SETTLE_SECONDS)
            given = await self._ask_client(entry, asked, format_request(entry, asked, worker))
            if given is not None:
                await submit_client_answer(self._store, entry.run, asked, given, by=self._by)


MOST_RUNS = 50
"""The maximum number of runs that a server executes for its clients at the same time."""


class TooManyRuns(OutsideFailed):
    """The server is already working on the maximum number of runs."""


class ClientRun:
    """A run that a client has started. Use `run` to answer its requests and to send messages to it."""

    def __init__(self, run: Run, store: StoreAddress) -> None:
        self.run = run
        self.id = run.id
        self._store = store
        self._followers: list[Follower] = []

    def entries(self) -> Follower:
        """Return an iterator that follows the timeline. The iterator ends when the server stops working on the run."""
        follower = Follower(self._store, self.id)
        self._followers.append(follower)
        if self.run.is_over:
            follower.finish()
        return follower

    async def result(self) -> Result:
        """Wait until the run ends, is paused or is interrupted, and return its result."""
        return await self.run.result()

    def finish_followers(self) -> None:
        """Tell the iterators from `entries` to end after the last entry written so far."""
        for follower in self._followers:
            follower.finish()


class ClientRuns:
    """The runs that the clients of one server have started.

    `by` is who uses the clients. `tell` is called with messages about background errors.
    """

    def __init__(self, tasks: TaskGroup, *, by: Actor, tell: Callable[[str], None]) -> None:
        self.by = by
        self._tasks = tasks
        self._tell = tell
        self._open: set[_RunTask] = set()

    @asynccontextmanager
    async def start(
        self,
        settings: Settings,
        place: Path,
        agent: str,
        request: str,
        *,
        id: str = "",
        **options: Unpack[RunOptions],
    ) -> AsyncIterator[ClientRun]:
        """Start a run in the folder `place` and yield it. Exiting the block before the run has ended stops the run.

        `id` is an id chosen in advance. Raise PodiumError if the run cannot start, and
        TooManyRuns if the server has the maximum number of runs.
        """
        if len(self._open) >= MOST_RUNS:
            raise TooManyRuns(f"the server is already working on {MOST_RUNS} runs; try again when one has ended")
        task = _RunTask()
        self._open.add(task)
        options["repo"], options["is_attended"] = place, True
        self._tasks.start_soon(self._work_on, settings, agent, request, options, id, task)
        try:
            await task.is_ready.wait()
            if task.started is None:
                raise task.error or PodiumError("the server is shutting down; try again after it has restarted")
            yield task.started
        finally:
            task.is_left.set()

    def close(self) -> None:
        """Interrupt all runs because the server is shutting down. They can be resumed."""
        for task in self._open:
            task.scope.cancel()

    async def _work_on(
        self, settings: Settings, agent: str, request: str, options: RunOptions, id: str, task: _RunTask
    ) -> None:
        try:
            with task.scope:
                async with (
                    App(settings) as app,
                    start_run(app.runs, agent, request, options, by=self.by, id=id) as run,
                ):
                    task.started = ClientRun(run, settings.store)
                    task.is_ready.set()
                    async with create_task_group() as group:
                        group.start_soon(_stop_when_left, task, run, self.by)
                        await follow_with_notices(settings, run, self._tell)
                        group.cancel_scope.cancel()
        except (PodiumError, ExceptionGroup) as error:
            why = find_first_error(error)
            task.error = why if isinstance(why, PodiumError) else PodiumError(f"cannot run {agent}: {why!r}")
            if task.started is not None:
                self._tell(f"run {task.started.id}: {why}")
        finally:
            self._open.discard(task)
            task.is_ready.set()
            if task.started is not None:
                task.started.finish_followers()


class _RunTask:
    """The state that a client's request shares with the background task that works on its run."""

    def __init__(self) -> None:
        self.scope = CancelScope()
        self.is_ready = Event()
        self.is_left = Event()
        self.started: ClientRun | None = None
        self.error: PodiumError | None = None


async def _stop_when_left(task: _RunTask, run: Run, by: Actor) -> None:
    await task.is_left.wait()
    if not run.is_over:
        await run.stop(by=by)


def describe_missing_answer(result: Result) -> str:
    """Return why a run that did not succeed has no answer, and how to continue it if that is possible."""
    if result.outcome in ("paused", "interrupted"):
        why = f" ({result.error})" if result.error and result.outcome == "interrupted" else ""
        return f"run {result.run_id} was {result.outcome}{why}; continue it with: podium resume {result.run_id}"
    why = f": {result.error}" if result.error else f"; see podium show {result.run_id}"
    return f"run {result.run_id} {describe_outcome(result.outcome)}{why}"


async def submit_client_answer(store: StoreAddress, run: str, asked: Asked, given: str, *, by: Actor) -> None:
    """Submit the answer from a client's user: a decision on a permission request, or the answer to a question.

    An answer that the request does not allow is ignored, so the request stays in the inbox.
    """
    if isinstance(asked, QuestionAsked):
        answer = NewAnswer(shown=get_shown(asked), text=given)
    elif given in DECISIONS:
        answer = NewAnswer(shown=get_shown(asked), decision=DECISIONS[given])
    else:
        return
    with suppress(AlreadyAnswered, Mistake):
        await to_thread.run_sync(partial(answer_request, store, run, asked, answer, by=by, home=None))


def format_request(entry: Entry, asked: Asked, worker: str = "") -> str:
    """Return a request as text for the person who answers it, with hidden characters escaped."""
    who = escape_in_line(parse_agent_name(entry.operation))
    where = f" (worker {escape_in_line(worker)})" if worker else ""
    if isinstance(asked, PermissionAsked):
        offered = structs.replace(asked, always="")  # a client cannot save a rule, so none is offered
        return "\n".join([f"{who}{where} requests permission:", *format_request_lines(offered)])
    return "\n\n".join(
        filter(None, [f"{who}{where} asks: {escape_hidden_text(asked.text)}", escape_hidden_text(asked.shown)])
    )
