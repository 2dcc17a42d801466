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

from .engine import Mind

CLOSE_SECONDS = 10.0


class Kept:
    """An open mind, and the way to put it away; `task` is None where nothing is held open."""

    __slots__ = ("_task", "mind")

    def __init__(self, mind: Mind, task: Task | None) -> None:
        self.mind = mind
        self._task = task

    async def aclose(self) -> None:
        """Put it away, however long it takes to go, but not for ever."""
        if self._task is not None:
            self._task.is_over.set()
            with move_on_after(CLOSE_SECONDS, shield=True):
                await self._task.is_gone.wait()
            self._task.scope.cancel()


class Task:
    """The task that holds a mind open."""

    def __init__(self) -> None:
        self.is_over = Event()
        self.is_gone = Event()
        self.scope = CancelScope()


class Keeper:
    """Holds minds in a task group that outlives the sessions; `noticed` hears of those that went badly."""

    def __init__(self, group: TaskGroup, *, noticed: Callable[[str], object]) -> None:
        self._group = group
        self._noticed = noticed

    async def open(self, opening: AbstractAsyncContextManager[Mind]) -> Kept:
        """The mind that this opens; what goes wrong with the opening is raised here."""
        if isinstance(opening, nullcontext):
            return Kept(opening.enter_result, None)
        kept = await self._group.start(self._keep, opening)
        assert isinstance(kept, Kept)
        return kept

    async def _keep(
        self, opening: AbstractAsyncContextManager[Mind], *, task_status: TaskStatus[Kept] = TASK_STATUS_IGNORED
    ) -> None:
        task, is_open = Task(), False
        try:
            async with opening as mind:
                is_open = True
                task_status.started(Kept(mind, task))
                with task.scope:
                    await task.is_over.wait()
        except Exception as error:
            if not is_open:
                raise
            self._noticed(f"a mind was not put away in good order: {type(error).__name__}: {error}")
        finally:
            task.is_gone.set()
