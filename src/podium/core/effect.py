"""Effects: actions outside the run, such as model calls and commands. Their intent is recorded before they begin."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .timeline import Timeline


class Effect:
    """A context manager that must be entered around every external effect.

    On entering, it waits until everything appended to the timeline so far is written. If the run is being paused, it
    blocks until the run stops, so that no new effect starts. Such a run stops once no effect is in progress.
    """

    __slots__ = ("_timeline",)

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    async def __aenter__(self) -> None:
        work = self._timeline.work
        await work.wait_while_paused()
        work.running_effects += 1
        try:
            await self._timeline.wait_written(is_alone=work.running_effects == 1)
        except BaseException:
            work.running_effects -= 1
            raise

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        work = self._timeline.work
        work.running_effects -= 1
        if self._timeline.index.is_pausing:
            work.pause()
