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
from ...values.errors import Failure, find_first_error
from ...values.event import Entry
from ...values.result import Result
from ...views.run_view import RunView
from .attendance import is_attended
from .interrupt import cancel_on_signal
from .prompting import RunPrompter
from .run_display import ProgressView

REFRESH_SECONDS = 0.25

OpenRun = Callable[[App], AbstractAsyncContextManager[Run]]


@dataclass(slots=True)
class RunEnding:
    """What came of working on a run; without a result the run did not even begin.

    `trouble` is the error that kept this process from going on.
    """

    result: Result | None = None
    failure: Failure | None = None
    error: BaseException | None = None
    signal: int | None = None


def work_on_run(
    settings: Settings, open_run: OpenRun, make_view: Callable[[RunView], ProgressView], *, past: Sequence[Entry] = ()
) -> RunEnding:
    """Work on the run that `opening` gives until it ends, pauses or is interrupted.

    `past` is the part of its timeline that is not to be shown again.
    """
    is_fast = find_spec("uvloop") is not None
    work = partial(_work_on_run, settings, open_run, make_view, past=past)
    return anyio.run(work, backend_options={"use_uvloop": is_fast})


async def _work_on_run(
    settings: Settings, open_run: OpenRun, make_view: Callable[[RunView], ProgressView], *, past: Sequence[Entry]
) -> RunEnding:
    run_view = RunView.from_entries(past)
    run: Run | None = None
    cause: BaseException | None = None
    with CancelScope() as scope, cancel_on_signal(scope) as interruption:
        async with App(settings) as app, open_run(app) as run:
            try:
                with make_view(run_view) as view:
                    await _follow_run(run, run_view, view, past, settings)
            except Exception as error:
                # Leaving the block would stop the run for good. A reader that went away is no reason
                # for that: being cancelled leaves the run resumable.
                cause = find_first_error(error)
                scope.cancel()
                await checkpoint()
    if cause is not None:
        raise cause
    if run is None:
        return RunEnding(signal=interruption.signal)
    return RunEnding(
        result=await run.result(),
        failure=run_view.ended.failure if run_view.ended is not None else None,
        error=run.error,
        signal=interruption.signal,
    )


async def _follow_run(
    run: Run, run_view: RunView, view: ProgressView, past: Sequence[Entry], settings: Settings
) -> None:
    """Show the run, and put to the person what its agents ask, until this process has stopped working on it."""
    prompter = RunPrompter(run, view, settings) if is_attended() else None

    async def refresh_periodically() -> None:
        while True:
            await sleep(REFRESH_SECONDS)
            view.refresh()

    async with create_task_group() as group:
        group.start_soon(refresh_periodically)
        if prompter is not None:
            group.start_soon(prompter.serve_requests)
            for entry in past:
                prompter.handle_entry(entry)
        with run.entries(run_view.seq) as entries:
            async for entry in entries:
                run_view.apply(entry)
                view.show_entry(entry)
                if prompter is not None:
                    prompter.handle_entry(entry)
        group.cancel_scope.cancel()
