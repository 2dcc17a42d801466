"""Execute a run for a command: start or resume the run, show its progress, handle signals, and return how it ended."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from types import FrameType

import anyio
from anyio import CancelScope, Event, create_task_group, sleep
from anyio.lowlevel import checkpoint

from ...app import App
from ...files.settings import Settings
from ...runs.queries.request_details import RequestListeners, WorkerRequestWatcher
from ...runs.run_handle import Run
from ...runs.run_notifications import RunNotices
from ...values.errors import Failure, find_first_error
from ...values.event import ActionRefused, Entry, WorkerSent
from ...values.request import Result
from ...views.run_state.tree import RunView
from .exit_codes import SIGNALLED
from .request_prompt import RequestPrompter, TerminalKeyboard
from .run_display import ProgressView, SilentView
from .terminal_input import is_attended
from .terminal_notifier import open_run_notices

REFRESH_SECONDS = 0.25

OpenRun = Callable[[App], AbstractAsyncContextManager[Run]]


@dataclass(slots=True)
class RunEnding:
    """How the execution of a run ended. `result` is None if the run did not start.

    `error` is the error that prevented this process from continuing. `error_text` is the result's error without the
    parts that the view has already printed. `refusals` lists the actions that were refused. `is_parked` means that the
    run is paused until somebody answers a request. `is_aborted` means that the user stopped the run when answering a
    request.
    """

    result: Result | None = None
    failure: Failure | None = None
    error: BaseException | None = None
    error_text: str = ""
    signal: int | None = None
    refusals: Sequence[ActionRefused] = ()
    is_parked: bool = False
    is_aborted: bool = False


def work_on_run(
    settings: Settings,
    open_run: OpenRun,
    make_view: Callable[[RunView], ProgressView],
    *,
    past: Sequence[Entry] = (),
    shows_notifications: bool = False,
) -> RunEnding:
    """Execute the run that `open_run` opens, until it ends, pauses or is interrupted.

    `past` contains the entries that the run already has; they are not shown again. With `shows_notifications`, the user
    is notified on the terminal as well as by commands and webhooks.
    """
    is_fast = find_spec("uvloop") is not None
    work = partial(_work_on_run, settings, open_run, make_view, past=past, shows_notifications=shows_notifications)
    return anyio.run(work, backend_options={"use_uvloop": is_fast})


async def _work_on_run(
    settings: Settings,
    open_run: OpenRun,
    make_view: Callable[[RunView], ProgressView],
    *,
    past: Sequence[Entry],
    shows_notifications: bool,
) -> RunEnding:
    run_view = RunView.from_entries(past)
    view: ProgressView = SilentView()
    run: Run | None = None
    cause: BaseException | None = None
    with CancelScope() as scope, cancel_on_signal(scope) as interruption:
        async with App(settings) as app, open_run(app) as run:
            try:
                view = make_view(run_view)
                async with open_run_notices(settings, is_shown=shows_notifications) as notices:
                    with view:
                        await _follow_run(run, run_view, view, past, settings, notices)
                    notices.report_error(run)
            except Exception as error:
                # After an error such as a closed output pipe, leaving the block normally would stop the run.
                # Cancel instead, so that the run can be resumed.
                cause = find_first_error(error)
                scope.cancel()
                await checkpoint()
    if cause is not None:
        raise cause
    if run is None:
        return RunEnding(signal=interruption.signal)
    result = await run.result()
    return RunEnding(
        result=result,
        failure=run_view.ended.failure if run_view.ended is not None else None,
        error=run.error,
        error_text=view.shorten_error(result.error or ""),
        signal=interruption.signal,
        refusals=run_view.refusals,
        is_parked=run_view.is_paused and bool(run_view.requests.unanswered),
        is_aborted=run_view.is_aborted,
    )


async def _follow_run(
    run: Run, run_view: RunView, view: ProgressView, past: Sequence[Entry], settings: Settings, notices: RunNotices
) -> None:
    """Show the run and ask the user to answer its requests, until this process stops working on the run."""
    prompter = RunPrompter(run, view, settings, notices) if is_attended() else None

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
        for entry in past:
            notices.apply_past(entry)
        with run.entries(run_view.seq) as entries:
            async for entry in entries:
                run_view.apply(entry)
                view.show_entry(entry)
                notices.handle_run_entry(entry)
                if prompter is not None:
                    prompter.handle_entry(entry)
        group.cancel_scope.cancel()


SHOW_CURSOR = b"\x1b[?25h\n"


@dataclass(slots=True)
class Interruption:
    """Records the signal that interrupted the work. `signal` is None if no signal has arrived."""

    signal: int | None = None


@contextmanager
def cancel_on_signal(scope: CancelScope) -> Iterator[Interruption]:
    """Cancel `scope` on the first signal, and exit at once on the second."""
    interruption = Interruption()
    loop = asyncio.get_running_loop()

    def handle_first_signal(number: int) -> None:
        interruption.signal = number
        for each in _SIGNALS:
            # The cancellation may block the event loop, so a second signal is handled without it.
            loop.remove_signal_handler(each)
            signal.signal(each, _exit_at_once)
        scope.cancel()

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        loop.add_signal_handler(number, handle_first_signal, number)
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def _exit_at_once(number: int, frame: FrameType | None) -> None:
    if sys.__stderr__ is not None and sys.__stderr__.isatty():
        os.write(sys.__stderr__.fileno(), SHOW_CURSOR)
    os._exit(SIGNALLED + number)


class RunPrompter:
    """Asks the user at the terminal to answer requests from a run and its workers."""

    def __init__(self, run: Run, view: ProgressView, settings: Settings, notices: RunNotices) -> None:
        self._prompter = RequestPrompter(view, TerminalKeyboard(), home=settings.home, store=settings.store)
        listeners = RequestListeners(self._prompter, notices)
        self._watcher = WorkerRequestWatcher(settings.store, listeners, sent_by=run.id)
        self._has_workers = Event()

    def handle_entry(self, entry: Entry) -> None:
        """Handle an entry from the run."""
        if isinstance(entry.event, WorkerSent):
            self._has_workers.set()
        self._prompter.handle_entry(entry)

    async def serve_requests(self) -> None:
        """Ask the user about requests as they arrive, until cancelled."""
        async with create_task_group() as group:
            group.start_soon(self._prompter.serve_requests)
            # Watch workers only after the run has started a worker: most runs never do.
            await self._has_workers.wait()
            await self._watcher.watch_requests()
