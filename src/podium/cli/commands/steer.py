"""`podium pause`, `send`, `stop`, `snapshot`, `budget` and `workers cancel`: steer a run while it works."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import anyio
import click
from anyio import move_on_after, to_thread
from msgspec import structs

from ...app import App
from ...core.budget import BUDGET_UNCHANGED
from ...files.settings import Settings
from ...runs import find
from ...runs.queries.run_lookup import open_reader
from ...runs.run_snapshot import take_run_snapshot
from ...runs.run_steering import (
    POLL_SECONDS,
    NewMessage,
    change_budget,
    describe_effective_time,
    pause_run,
    send_message,
    stop_run,
    wait_for_end_or_pause,
)
from ...store.follower import Follower
from ...store.reader import RunSummary, StoreReader
from ...values.actor import Actor
from ...values.agent import Budget
from ...values.errors import Mistake, RunHeld, RunOver
from ...values.event import SCHEMA, BudgetChanged, Entry, Noticed, RunEnded, RunPaused, SnapshotTaken
from ...values.request import read_attachments
from ...values.store_address import StoreAddress
from ...views.run_report import Report
from ...views.worker_state import WorkerState
from ...workers.queries.worker_lookup import RepoContext, load_worker_states
from ..output import exit_codes
from ..output.budget_text import BudgetParamType, format_limits
from ..output.command_options import get_command_actor, read_text_argument
from ..output.text import as_json, format_duration, format_usage, print_to_stderr


@click.command("pause")
@click.argument("run")
def pause_command(run: str) -> None:
    """Pause RUN and wait until its current steps have finished. podium resume continues it.

    RUN can also be the branch or name of a worker in this repository.
    """
    settings = Settings.load()
    anyio.run(_pause_and_wait, settings, find.resolve(settings.store, run).run, get_command_actor())


async def _pause_and_wait(settings: Settings, run: str, by: Actor) -> None:
    """Pause a run, wait until its current steps have finished, and tell the user how that ended."""
    async with App(settings) as app:
        paused = await pause_run(app.runs, run, by=by)
    print_to_stderr(paused.text)
    if not paused.is_pending:
        return
    match await wait_for_end_or_pause(settings.store, run):
        case RunPaused():
            print_to_stderr(f"paused; continue with: podium resume {run}")
        case RunEnded(outcome=outcome):
            print_to_stderr(f"run {run} ended before it could be paused ({outcome})")
        case None:
            print_to_stderr(f"the process working on run {run} has exited; continue with: podium resume {run}")


@click.command("send")
@click.argument("run", metavar="RUN[/AGENT]")
@click.argument("text")
@click.option(
    "--attach",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Image or text file to attach; can be repeated.",
)
def send_command(run: str, text: str, paths: tuple[Path, ...]) -> None:
    """Send TEXT to an agent in RUN (default: the first one), which receives it with its next model call.

    If TEXT is -, it is read from standard input. RUN can also be the branch or name of a worker in this
    repository.
    """
    message_text, files = read_text_argument(text), read_attachments(paths)
    store = Settings.load().store
    with open_reader(store) as reader:
        found = find.resolve(reader, run, wanted="agent")
        summary = reader.read_summary(found.run)
    message = NewMessage(text=message_text, agent=found.agent, files=files)
    print_to_stderr(send_message(store, summary, message, by=get_command_actor()).text)


@click.command("stop")
@click.argument("run")
def stop_command(run: str) -> None:
    """Stop RUN, keep its partial results, and wait until it has ended.

    A stopped run cannot be resumed. To continue later, use podium pause, or interrupt the run with Ctrl-C.
    RUN can also be the branch or name of a worker in this repository.
    """
    settings = Settings.load()
    id = find.resolve(settings.store, run).run
    ended = anyio.run(_stop_run_and_wait, settings, id, get_command_actor())
    print_to_stderr(f"run {id} has ended ({ended.outcome}); run podium show {id} to see its results")


async def _stop_run_and_wait(settings: Settings, run: str, by: Actor) -> RunEnded:
    """Stop a run, wait until it has ended and return its last event."""
    async with App(settings) as app:
        print_to_stderr((await stop_run(app.runs, run, by=by)).text)
        # If the run's process exits before it handles the request, this process ends the run.
        while not isinstance(last := await wait_for_end_or_pause(settings.store, run), RunEnded):
            with suppress(RunOver):
                await stop_run(app.runs, run, by=by)
    return last


@click.command("snapshot")
@click.argument("run")
@click.option("--name", metavar="NAME", help="Name of the snapshot; by default manual-1, manual-2 and so on.")
def snapshot_command(run: str, name: str | None) -> None:
    """Take a snapshot of RUN, and print its name. podium fork RUN --at NAME starts a new run from it.

    A snapshot contains the position on the timeline, the current files, and the branches of workers that have ended.
    RUN must be paused or interrupted.
    """
    settings = Settings.load()
    with open_reader(settings.store) as reader:
        summary = reader.read_summary(find.resolve(reader, run).run)
    id = summary.id
    if summary.is_over:
        raise Mistake(
            f"run {id} has ended ({summary.phase}), so nothing can be added to its timeline; "
            f"use podium fork {id} --at SEQ to start a new run from any of its entries"
        )
    try:
        taken, why_not = anyio.run(_take_snapshot, settings, id, name)
    except RunHeld as error:
        raise Mistake(
            f"run {id} is in use by process {error.pid} on {error.host}, so its files may change at any time; "
            f"pause it first with: podium pause {id}"
        ) from error
    if why_not:
        print_to_stderr(f"the snapshot contains only the position on the timeline, not the files: {why_not}")
    click.echo(taken.name)


async def _take_snapshot(settings: Settings, run: str, name: str | None) -> tuple[SnapshotTaken, str]:
    async with App(settings) as app:
        return await take_run_snapshot(app.runs, run, by=get_command_actor(), name=name)


@click.command("budget")
@click.argument("run")
@click.argument("limits", required=False, type=BudgetParamType())
@click.option("--json", "is_json", is_flag=True, help="Print the limits and the usage as JSON.")
def budget_command(run: str, limits: Budget | None, is_json: bool) -> None:
    """Show the budget and usage of RUN. With LIMITS, e.g. usd=5,tokens=300000, change the budget.

    A time limit applies immediately; other limits apply from the next model call. Limits that are not
    listed do not change. If a limit is below the current usage, further work is refused, and the run ends with its
    partial results. RUN can also be the branch or name of a worker in this repository.
    """
    store = Settings.load().store
    with open_reader(store) as reader:
        summary = reader.read_summary(find.resolve(reader, run).run)
    if limits is not None:
        print_to_stderr(_change_budget_and_wait(store, summary, limits))
    if limits is None or is_json:
        with open_reader(store) as reader:
            report = Report.from_entries(reader.read_entries(summary.id))
        budget, usage = report.budget or Budget(), structs.replace(report.usage, seconds=report.seconds)
        answer = {"run": report.run, "budget": structs.asdict(budget), "usage": structs.asdict(usage)}
        click.echo(as_json({"schema": SCHEMA, **answer}) if is_json else _format_budget(report))


def _change_budget_and_wait(store: StoreAddress, summary: RunSummary, limits: Budget) -> str:
    """Change the limits of a run and return a message for the user. Raise Mistake if they cannot be changed."""
    run = summary.id
    changed = change_budget(store, summary, limits, by=get_command_actor())
    if not changed.is_pending:
        return changed.text
    match anyio.run(wait_for_reply, store, run, summary.last.seq, limits):
        case BudgetChanged():
            return f"run {run}: {format_limits(limits)} applies {describe_effective_time(limits)}"
        case Noticed(text=text):
            raise Mistake(text)
        case RunEnded(outcome=outcome):
            raise Mistake(f"run {run} has ended ({outcome}), so its budget was not changed")
    when = f"when it is resumed with podium resume {run}"
    return f"run {run} is no longer running; {format_limits(limits)} will apply {when}"


async def wait_for_reply(
    store: StoreAddress, run: str, after: int, limits: Budget
) -> BudgetChanged | Noticed | RunEnded | None:
    """Wait for the run's process to reply to a requested change. Return None if the process exits without a reply."""
    with StoreReader(store) as reader:
        while True:
            # New entries wake the follower, but the exit of a process does not, so the state is polled.
            with move_on_after(POLL_SECONDS), Follower(store, run, after) as entries:
                async for entry in entries:
                    after = entry.seq
                    if (reply := _match_reply(entry, limits)) is not None:
                        return reply
            if (await to_thread.run_sync(reader.read_summary, run)).phase != "running":
                return None


def _match_reply(entry: Entry, limits: Budget) -> BudgetChanged | Noticed | RunEnded | None:
    match entry.event:
        case BudgetChanged(budget=budget) as event if budget == limits:
            return event
        case Noticed(text=text) as event if text.startswith(BUDGET_UNCHANGED):
            return event
        case RunEnded() as event:
            return event
    return None


def _format_budget(report: Report) -> str:
    """Return the budget and the usage of a run as text."""
    return (
        f"budget  {format_limits(report.budget)}\nused    {format_usage(report.usage)} in "
        f"{format_duration(report.seconds)}"
    )


@click.command("cancel")
@click.argument("branch")
@click.pass_obj
def workers_cancel_command(context: RepoContext, branch: str) -> int:
    """Stop the worker on BRANCH and wait until it has ended.

    Its changes so far are committed to its branch. The exit code is 1 if it ended before it was cancelled.
    """
    return cancel_worker(context, context.load_worker(branch), get_command_actor())


def cancel_worker(context: RepoContext, worker: WorkerState, by: Actor) -> int:
    """Stop a worker, print how it ended and return the exit code. Raise Mistake if the worker has already ended."""
    _require_not_over(worker)
    try:
        ended = anyio.run(_stop_run_and_wait, context.settings, worker.run, by)
    except RunOver:
        _require_not_over(*load_worker_states(context.store, [worker.run]))
        raise
    print_to_stderr(
        f"{worker.name} has ended ({ended.outcome}); run podium workers status {worker.name} to see the details"
    )
    return exit_codes.GOAL_MET if ended.outcome == "cancelled" else exit_codes.GOAL_NOT_MET


def _require_not_over(worker: WorkerState) -> None:
    if worker.is_over:
        raise Mistake(f"{worker.name} has already ended ({worker.state}), so there is nothing to cancel")
