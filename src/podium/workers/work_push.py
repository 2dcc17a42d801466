"""Push a worker's files to its remote after every step, so that another machine can continue the work.

A push does not delay the work: it runs during the next model call, and one push covers all steps that have ended by
then. A push that fails is recorded and retried after the next step.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType

from anyio import CancelScope, Event, Lock, move_on_after
from anyio.abc import TaskGroup

from ..core.timeline import Timeline
from ..files.settings import Settings
from ..store.worktree_ledger import Ledger
from ..values.errors import PodiumError, StoreFailed
from ..values.event import KINDS, ActionBegan, Entry, PushFailed, ToolAnswered, TurnEnded, WorkPushed
from ..values.worker_task import WorkerTask
from ..workspace.git.repository import Repository
from ..workspace.travel.repository_cache import RepositoryCache, list_left_out, object_folder, run_ref, take_checkpoint
from ..workspace.worktrees.worktree import Worktrees

PUSH_SECONDS = 120.0
"""The timeout for one push."""
LAST_PUSH_SECONDS = 10.0
"""The timeout for a push when the run is paused or interrupted."""


class WorkPush:
    """Pushes the files of one worker's checkout while this process owns the worker's run.

    `worker_task` contains the paths on this machine. The pushes run in the task group `tasks`.
    """

    def __init__(self, timeline: Timeline, settings: Settings, tasks: TaskGroup, worker_task: WorkerTask) -> None:
        assert worker_task.origin is not None
        self._timeline = timeline
        self._worker_task = worker_task
        self._remote = worker_task.origin.remote
        self._cache = RepositoryCache(home=settings.home)
        self._ledger = Ledger(settings.store)
        self._tasks = tasks
        self._ref = run_ref(timeline.run, timeline.epoch)
        self._own_push = ""
        """The commit that this process last pushed to its ref."""
        self._failure = ""
        self._lock = Lock()
        self._acting: set[str] = set()
        """The scopes of the running actions."""
        self._has_acted = False
        """Whether an action has ended since the last push."""
        self._step_ended = Event()
        self._scope = CancelScope()

    def push_during(self, tools: AbstractAsyncContextManager[object]) -> AbstractAsyncContextManager[object]:
        """Return a context manager that opens `tools` and pushes the run's files after every step until it exits."""
        return _PushedWork(self, tools)

    def start(self) -> None:
        """Push now, and then again after every step."""
        self._timeline.listeners.append(self._apply_entry)
        self._step_ended.set()
        self._tasks.start_soon(self._push_after_steps)

    async def stop(self, *, is_interrupted: bool) -> None:
        """Stop pushing. If the work was interrupted, push once more."""
        self._timeline.listeners.remove(self._apply_entry)
        self._scope.cancel()
        if is_interrupted:
            with move_on_after(LAST_PUSH_SECONDS, shield=True):
                await self.push()

    def _apply_entry(self, entry: Entry) -> None:
        match entry.event:
            case ActionBegan():
                self._acting.add(entry.scope)
            case ToolAnswered() if entry.scope in self._acting:
                self._acting.discard(entry.scope)
                self._has_acted = True
                self._step_ended.set()
            case TurnEnded():  # an external agent may have changed files without calling a tool
                self._step_ended.set()

    async def _push_after_steps(self) -> None:
        with self._scope:
            while True:
                await self._step_ended.wait()
                self._step_ended = Event()
                await self.push()

    async def push(self) -> None:
        """Push the current files, unless they are already on the remote, and record the result."""
        async with self._lock:
            try:
                await self._push_files()
            except StoreFailed:
                # Another process owns the run now, or the store has failed. Either way, work on the run stops here.
                return
            except (PodiumError, OSError) as error:
                self._record_failure(str(error))

    async def _push_files(self) -> None:
        timeline = self._timeline
        # If another process owns the run now, this raises LeaseLost, and nothing is pushed.
        await timeline.wait_written()
        through, has_acted, self._has_acted = timeline.seq, self._has_acted, False
        known = timeline.find_events_below("", WorkPushed)
        last = known[-1] if known else None
        worktrees = Worktrees(repository=Repository.at(Path(self._worker_task.root)), ledger=self._ledger)
        checkout = await worktrees.find_checkout(self._worker_task.branch)
        checkpoint = await take_checkpoint(
            checkout, run=timeline.run, epoch=timeline.epoch, previous="" if last is None else last.commit
        )
        is_new = last is None or checkpoint.commit != last.commit
        if not is_new and not has_acted:
            return
        if is_new:
            mirror, objects = self._cache.open_mirror(self._remote), object_folder(checkout)
            await mirror.push(objects, checkpoint.commit, self._ref, expected=self._own_push, timeout=PUSH_SECONDS)
            self._own_push = checkpoint.commit
        pushed = WorkPushed(
            commit=checkpoint.commit,
            head=checkpoint.head,
            ref=self._ref if is_new or last is None else last.ref,
            through=through,
            ignored=await list_left_out(checkout),
        )
        self._failure = ""
        timeline.append(pushed, scope="", key=f"/{KINDS[WorkPushed]}#{len(known) + 1}")

    def _record_failure(self, reason: str) -> None:
        if reason != self._failure:
            self._failure = reason
            self._timeline.append(PushFailed(reason=reason), scope="")


class _PushedWork:
    """A context manager that opens a run's tools and pushes the run's files after every step until it exits."""

    def __init__(self, push: WorkPush, tools: AbstractAsyncContextManager[object]) -> None:
        self._push = push
        self._tools = tools

    async def __aenter__(self) -> object:
        entered = await self._tools.__aenter__()
        self._push.start()
        return entered

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        await self._push.stop(is_interrupted=exc is not None and not isinstance(exc, Exception))
        return await self._tools.__aexit__(exc_type, exc, traceback)
