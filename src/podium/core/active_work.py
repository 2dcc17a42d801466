"""Track what this process is doing for a run: external effects, timeouts, and waits for providers' limits to reset.

When a run is paused, no new effect starts, and the work ends with the last running effect. If all agents are waiting
for limits to reset, a process can stop working on the run until then.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from .clock import LimitWait, LimitWaits

if TYPE_CHECKING:
    from .clock import RunTimeouts
    from .timeline import Timeline

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


IDLE_SECONDS = 1.0
"""How long all agents of a run must be waiting for limits to reset before this process stops working on the run."""


class ActiveWork:
    """What this process is doing for a run.

    With `parks_at_limits`, the work ends while all agents of the run wait for providers' limits to reset.
    """

    __slots__ = ("_timeline", "_timeouts", "limit_waits", "running_effects", "wakeup")

    def __init__(self, timeline: Timeline, *, parks_at_limits: bool) -> None:
        self.running_effects = 0
        """The number of external effects, such as model calls and commands, that are in progress."""
        self.limit_waits = LimitWaits(on_wait=self._park_when_idle) if parks_at_limits else LimitWaits()
        self.wakeup: LimitWait | None = None
        """The wait until a provider's limit resets, if it ended the work; otherwise None."""
        self._timeline = timeline
        self._timeouts: RunTimeouts | None = None

    @property
    def effect(self) -> Effect:
        """The context manager that must be entered around every external effect."""
        return Effect(self._timeline)

    @property
    def timeouts(self) -> RunTimeouts:
        """The active timeouts of the run."""
        if self._timeouts is None:
            self._timeouts = _load_timeouts_class()()
        return self._timeouts

    def pause(self) -> None:
        """Prevent new effects from starting, and end the work when the last running effect ends."""
        self._timeline.index.is_pausing = True
        if self.running_effects == 0 and self.timeouts.is_running:
            self.timeouts.whole.scope.cancel()

    async def wait_while_paused(self) -> None:
        """Block forever if the run is being paused, so that no timeout is reported while the run stops."""
        if self._timeline.index.is_pausing:
            from anyio import sleep_forever  # imported here because reading a store needs no event loop

            await sleep_forever()

    @property
    def _only_waits_for_limits(self) -> bool:
        """Whether agents are waiting for provider limits to reset, and nothing else in the run is active."""
        index, waits = self._timeline.index, self.limit_waits
        is_idle = waits.busy == 0 and self.running_effects == 0 and not index.unreturned_workers
        return is_idle and waits.next_wait is not None and index.requests.are_all_answered

    def _park_when_idle(self, seq: int | None = None) -> None:
        """End the work if all agents have been idle for a while, waiting for limits to reset.

        `seq` is the number of the last entry at the previous check. A check is scheduled whenever an agent starts to
        wait.
        """
        wait = self.limit_waits.next_wait
        if wait is None or not self.timeouts.is_running:
            return
        if seq == self._timeline.seq and self._only_waits_for_limits:
            self.wakeup = wait
            self.timeouts.whole.scope.cancel()
            return
        from asyncio import get_running_loop  # imported here because reading a store needs no event loop

        get_running_loop().call_later(IDLE_SECONDS, self._park_when_idle, self._timeline.seq)


@cache
def _load_timeouts_class() -> type[RunTimeouts]:
    from .clock import RunTimeouts  # imported here because reading a store needs no event loop

    return RunTimeouts
