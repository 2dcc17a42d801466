"""Run each engine session in its own task, which opens the session and closes it.

An engine session may contain task groups and cancel scopes. These must be exited in reverse order, in
the task that entered them. An agent opens its engine session inside a timeout and closes it outside
that timeout, so the agent's own task cannot do both.
"""

from __future__ import annotations

from asyncio import Event
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext

from anyio import TASK_STATUS_IGNORED, CancelScope, move_on_after
from anyio.abc import TaskGroup, TaskStatus

from .engine import EngineSession

CLOSE_SECONDS = 10.0


class OpenEngineSession:
    """An open engine session and the task that runs it; `task` is None if nothing needs to be closed."""

    __slots__ = ("_task", "engine_session")

    def __init__(self, engine_session: EngineSession, task: EngineSessionTask | None) -> None:
        self.engine_session = engine_session
        self._task = task

    async def aclose(self) -> None:
        """Close the engine session. If that takes longer than CLOSE_SECONDS, cancel its task."""
        if self._task is not None:
            self._task.close_asked.set()
            with move_on_after(CLOSE_SECONDS, shield=True):
                await self._task.closed.wait()
            self._task.scope.cancel()


class EngineSessionTask:
    """Controls the task of one engine session: asks it to close the session, or cancels it."""

    def __init__(self) -> None:
        self.close_asked = Event()
        self.closed = Event()
        self.scope = CancelScope()


class EngineSessionTasks:
    """Runs engine sessions in a task group that outlives them. If closing a session fails, `on_notice` is called."""

    def __init__(self, group: TaskGroup, *, on_notice: Callable[[str], object]) -> None:
        self._group = group
        self._on_notice = on_notice

    async def open(self, opening: AbstractAsyncContextManager[EngineSession]) -> OpenEngineSession:
        """Open an engine session in a new task and return it. Errors while opening it are raised here."""
        if isinstance(opening, nullcontext):
            return OpenEngineSession(opening.enter_result, None)
        opened = await self._group.start(self._hold_open, opening)
        assert isinstance(opened, OpenEngineSession)
        return opened

    async def _hold_open(
        self,
        opening: AbstractAsyncContextManager[EngineSession],
        *,
        task_status: TaskStatus[OpenEngineSession] = TASK_STATUS_IGNORED,
    ) -> None:
        task, is_open = EngineSessionTask(), False
        try:
            async with opening as engine_session:
                is_open = True
                task_status.started(OpenEngineSession(engine_session, task))
                with task.scope:
                    await task.close_asked.wait()
        except Exception as error:
            if not is_open:
                raise
            self._on_notice(f"an engine session did not close cleanly: {type(error).__name__}: {error}")
        finally:
            task.closed.set()
