"""`podium budget`: see what a run may use, or change it while the run works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import click
from anyio import move_on_after, to_thread
from msgspec import structs

from ...core.budget import STAYS
from ...runs.run_lookup import found, looking
from ...runs.run_rest import LOOK_SECONDS
from ...runs.run_state import is_over, state
from ...setup.settings import Settings
from ...store.follower import Follower
from ...store.sqlite.mailbox import post
from ...store.sqlite.reader import Reader, Summary
from ...values.agent import Budget
from ...values.errors import Mistake
from ...values.event import SCHEMA, BudgetChanged, Entry, Noticed, RunEnded
from ...views.run_report import Report
from ..terminal.budget_text import BudgetText, limits_told
from ..terminal.measure import span, used
from ..terminal.say import say
from ..terminal.text import as_json


@click.command("budget")
@click.argument("run")
@click.argument("limits", required=False, type=BudgetText())
@click.option("--json", "is_json", is_flag=True, help="Print the limits and what is used as JSON.")
def command(run: str, limits: Budget | None, is_json: bool) -> None:
    """Show what RUN may use and has used; with LIMITS, such as usd=5,tokens=300000, change it.

    New limits hold from the next model call on; those that are not named stay as they are. A limit
    below what is used already ends the run there, with what it has. RUN may also be the branch or
    name of a worker in this repository.
    """
    store = Settings.load().store
    with looking(store) as reader:
        summary = reader.summary(found(store, run))
    if limits is not None:
        say(changed(store, summary, limits))
    if limits is None or is_json:
        with looking(store) as reader:
            report = Report.of(reader.entries(summary.id))
        click.echo(as_json(fields(report)) if is_json else rendered(report))


def changed(store: Path, summary: Summary, limits: Budget) -> str:
    """Ask for the change, and say what came of it. Raises Mistake where it cannot be made."""
    run = summary.id
    if is_over(summary):
        raise Mistake(
            f"run {run} has ended ({state(summary)}) and cannot be resumed, so its budget stays as it was; "
            "it can only be tried again, as a new run"
        )
    change = BudgetChanged(budget=limits)
    post(store, run, change)
    if state(summary) != "running":
        return (
            f"nobody works on run {run} now: {limits_told(limits)} will hold when it goes on with podium resume {run}"
        )
    match anyio.run(wait_for_verdict, store, run, summary.last.seq, change):
        case BudgetChanged():
            return f"run {run}: {limits_told(limits)} holds {since(limits)}"
        case Noticed(text=text):
            raise Mistake(text)
        case RunEnded(outcome=outcome):
            raise Mistake(f"run {run} has ended meanwhile ({outcome}), so its budget stays as it was")
    return (
        f"nobody works on run {run} any more: {limits_told(limits)} will hold when it goes on with podium resume {run}"
    )


def since(limits: Budget) -> str:
    """From when on changed limits hold: one of seconds does not wait for a call."""
    if limits.seconds is None:
        return "from the next model call on"
    return (
        "from now on" if limits == Budget(seconds=limits.seconds) else "from the next model call on, seconds from now"
    )


async def wait_for_verdict(
    store: Path, run: str, after: int, change: BudgetChanged
) -> BudgetChanged | Noticed | RunEnded | None:
    """What the run's process says to a change; None when it is gone and has said nothing."""
    with Reader(store) as reader:
        while True:
            # Entries ring; the death of a process does not, so that it is looked for now and then.
            with move_on_after(LOOK_SECONDS), Follower(store, run, after) as entries:
                async for entry in entries:
                    after = entry.seq
                    if (verdict := _verdict(entry, change)) is not None:
                        return verdict
            if state(await to_thread.run_sync(reader.summary, run)) != "running":
                return None


def _verdict(entry: Entry, change: BudgetChanged) -> BudgetChanged | Noticed | RunEnded | None:
    match entry.event:
        case BudgetChanged() as event if event == change:
            return event
        case Noticed(text=text) as event if text.startswith(STAYS):
            return event
        case RunEnded() as event:
            return event
    return None


def rendered(report: Report) -> str:
    """What a run may use, and what it has used."""
    return f"budget  {limits_told(report.budget)}\nused    {used(report.usage)} in {span(report.seconds)}"


def fields(report: Report) -> dict[str, Any]:
    """The same for programs; a limit that there is not is null."""
    return {
        "schema": SCHEMA,
        "run": report.run,
        "budget": structs.asdict(report.budget or Budget()),
        "usage": structs.asdict(structs.replace(report.usage, seconds=report.seconds)),
    }
