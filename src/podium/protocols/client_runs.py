"""Work on the runs that the clients of a protocol server start, each in a background task of the server.

A run belongs to the request that started it: if the client cancels the request or disconnects, the run is stopped. If
the server stops, its runs are interrupted and can be resumed. Permission requests and questions are in the inbox, like
those of other runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Unpack

from anyio import CancelScope, Event, create_task_group
from anyio.abc import TaskGroup

from ..app import App, RunOptions
from ..files.settings import Settings
from ..runs.run_handle import Run
from ..runs.run_notices import follow_with_notices
from ..runs.run_start import start_run
from ..store.follower import Follower
from ..values.actor import Actor
from ..values.errors import OutsideFailed, PodiumError, find_first_error
from ..values.request import describe_outcome
from ..values.result import Result
from ..values.store_address import StoreAddress

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
