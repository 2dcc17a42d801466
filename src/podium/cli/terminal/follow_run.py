"""Working on a run from a command: what is opened, shown, interrupted, and what it came to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import anyio
from anyio import CancelScope, create_task_group, sleep
from anyio.lowlevel import checkpoint

from ...app import App
from ...runs.run_handle import Run
from ...setup.settings import Settings
from ...values.errors import Failure, first_error
from ...values.event import Entry
from ...values.result import Result
from ...views.run_view import Picture
from .attendance import is_attended
from .interrupt import interruptible
from .prompting import Attendance
from .run_display import View

TICK_SECONDS = 0.25

Opening = Callable[[App], AbstractAsyncContextManager[Run]]


@dataclass(slots=True)
class Ending:
    """What came of working on a run; without a result the run did not even begin.

    `trouble` is the error that kept this process from going on.
    """

    result: Result | None = None
    failure: Failure | None = None
    trouble: BaseException | None = None
    signal: int | None = None


def worked(
    settings: Settings, opening: Opening, view: Callable[[Picture], View], *, past: Sequence[Entry] = ()
) -> Ending:
    """Work on the run that `opening` gives until it ends, pauses or is interrupted.

    `past` is the part of its timeline that is not to be shown again.
    """
    is_fast = find_spec("uvloop") is not None
    work = partial(_worked, settings, opening, view, past=past)
    return anyio.run(work, backend_options={"use_uvloop": is_fast})


async def _worked(
    settings: Settings, opening: Opening, view: Callable[[Picture], View], *, past: Sequence[Entry]
) -> Ending:
    picture = Picture.of(past)
    run: Run | None = None
    trouble: BaseException | None = None
    with CancelScope() as scope, interruptible(scope) as interruption:
        async with App(settings) as app, opening(app) as run:
            try:
                with view(picture) as shown:
                    await _watch(run, picture, shown, past, settings)
            except Exception as error:
                # Leaving the block would stop the run for good. A reader that went away is no reason
                # for that: being cancelled leaves the run resumable.
                trouble = first_error(error)
                scope.cancel()
                await checkpoint()
    if trouble is not None:
        raise trouble
    if run is None:
        return Ending(signal=interruption.signal)
    return Ending(
        result=await run.result(),
        failure=picture.ended.failure if picture.ended is not None else None,
        trouble=run.trouble,
        signal=interruption.signal,
    )


async def _watch(run: Run, picture: Picture, view: View, past: Sequence[Entry], settings: Settings) -> None:
    """Show the run, and put to the person what its agents ask, until this process has stopped working on it."""
    attendance = Attendance(run, view, settings) if is_attended() else None

    async def keep_time() -> None:
        while True:
            await sleep(TICK_SECONDS)
            view.tick()

    async with create_task_group() as group:
        group.start_soon(keep_time)
        if attendance is not None:
            group.start_soon(attendance.keep)
            for entry in past:
                attendance.hear(entry)
        with run.entries(picture.seq) as entries:
            async for entry in entries:
                picture.apply(entry)
                view.show(entry)
                if attendance is not None:
                    attendance.hear(entry)
        group.cancel_scope.cancel()
