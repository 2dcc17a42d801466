"""Keeping minds open: each in a task of its own, from its opening to its end.

An engine may hold task groups and cancel scopes while a mind is open, and those must end in the
task and in the order in which they began. A session opens its mind inside one limit and puts it
away outside of it; so somebody else has to hold it.
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
    """An open mind, and the way to put it away; `task` is None where nothing is held open."""

    __slots__ = ("_task", "engine_session")

    def __init__(self, engine_session: EngineSession, task: EngineSessionTask | None) -> None:
        self.engine_session = engine_session
        self._task = task

    async def aclose(self) -> None:
        """Put it away, however long it takes to go, but not for ever."""
        if self._task is not None:
            self._task.close_asked.set()
            with move_on_after(CLOSE_SECONDS, shield=True):
                await self._task.closed.wait()
            self._task.scope.cancel()


class EngineSessionTask:
    """The task that holds a mind open."""

    def __init__(self) -> None:
        self.close_asked = Event()
        self.closed = Event()
        self.scope = CancelScope()


class EngineSessionTasks:
    """Holds minds in a task group that outlives the sessions; `noticed` hears of those that went badly."""

    def __init__(self, group: TaskGroup, *, on_notice: Callable[[str], object]) -> None:
        self._group = group
        self._on_notice = on_notice

    async def open(self, opening: AbstractAsyncContextManager[EngineSession]) -> OpenEngineSession:
        """The mind that this opens; what goes wrong with the opening is raised here."""
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
            self._on_notice(f"a mind was not put away in good order: {type(error).__name__}: {error}")
        finally:
            task.closed.set()
