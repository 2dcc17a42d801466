"""`podium follow`: follow a run that another process is working on, until it ends or pauses."""

from __future__ import annotations

import time

import anyio
import click
from anyio import create_task_group, move_on_after, sleep, to_thread
from msgspec import structs

from ...files.settings import Settings
from ...runs import find
from ...runs.run_notices import RunNotices
from ...runs.run_wait import POLL_SECONDS
from ...store.follower import Follower
from ...store.reader import StoreReader
from ...values.store_address import StoreAddress
from ...views.run_state.tree import RunView
from ..terminal.follow_run import REFRESH_SECONDS, RunEnding
from ..terminal.outcome_text import ResultDocument
from ..terminal.run_display import ProgressView
from ..terminal.run_output import OutputOptions, output_options
from ..terminal.terminal_notifier import make_terminal_notifier
from ..terminal.text import as_json

MOST_IDLE_POLLS = 5
"""How many polling rounds to wait for a worker that has no process. A commander restarts workers that crash."""


@click.command("follow")
@click.argument("run")
@output_options
def follow_command(run: str, **output: bool) -> int:
    """Show the progress of RUN while another process works on it. When RUN ends or pauses, print its answer.

    The output and the exit code are the same as for podium run. Ctrl-C ends this command; the run continues. RUN can
    also be the branch or name of a worker in this repository.
    """
    shown = OutputOptions(**output)
    settings = Settings.load()
    id = find.resolve(settings.store, run).run
    run_view = RunView()
    terminal = make_terminal_notifier(settings.notify, is_shown=shown.shows_notifications)
    with terminal, RunNotices(terminal) as notices, shown.make_view(run_view) as view:
        anyio.run(follow_until_end, settings.store, id, run_view, view, notices)
    ending = build_ending(run_view, view)
    code = shown.print_ending(ending)
    if shown.is_json:
        click.echo(as_json(ResultDocument.of(ending.result)))
    return code


async def follow_until_end(
    store: StoreAddress, run: str, run_view: RunView, view: ProgressView, notices: RunNotices
) -> None:
    """Show the entries of a run until it ends or pauses, or until no process is working on it any more."""
    begun = time.time()

    async def refresh_periodically() -> None:
        while True:
            await sleep(REFRESH_SECONDS)
            view.refresh()

    async with create_task_group() as group:
        group.start_soon(refresh_periodically)
        with StoreReader(store) as reader:
            idle = 0
            most = MOST_IDLE_POLLS if reader.read_summary(run).is_worker else 1
            while idle < most:
                # New entries wake the follower, but the exit of the run's process does not, so the state is polled.
                with move_on_after(POLL_SECONDS), Follower(store, run, run_view.seq) as entries:
                    async for entry in entries:
                        run_view.apply(entry)
                        view.show_entry(entry)
                        (notices.apply_past if entry.at < begun else notices.handle_run_entry)(entry)
                    break
                summary = await to_thread.run_sync(reader.read_summary, run)
                idle = idle + 1 if summary.phase == "resumable" else 0
        group.cancel_scope.cancel()


def build_ending(run_view: RunView, view: ProgressView) -> RunEnding:
    """Return the ending of a run that another process worked on."""
    result = run_view.build_result()
    if result.outcome == "interrupted":
        result = structs.replace(result, error=f"no process is working on run {run_view.run}")
    return RunEnding(
        result=result,
        failure=None if run_view.ended is None else run_view.ended.failure,
        error_text=view.shorten_error(result.error or ""),
        refusals=run_view.refusals,
        is_parked=run_view.is_paused and bool(run_view.requests.unanswered),
        is_aborted=run_view.is_aborted,
    )
