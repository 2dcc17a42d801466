"""`podium budget`: show or change the budget of a run, even while the run is active."""

from __future__ import annotations

import anyio
import click
from anyio import move_on_after, to_thread
from msgspec import structs

from ...core.budget import BUDGET_UNCHANGED
from ...files.settings import Settings
from ...runs import find
from ...runs.queries.run_lookup import open_reader
from ...runs.run_steering import change_budget, describe_effective_time
from ...runs.run_wait import POLL_SECONDS
from ...store.follower import Follower
from ...store.reader import RunSummary, StoreReader
from ...values.agent import Budget
from ...values.errors import Mistake
from ...values.event import SCHEMA, BudgetChanged, Entry, Noticed, RunEnded
from ...values.store_address import StoreAddress
from ...views.run_report import Report
from ..terminal.budget_text import BudgetParamType, format_limits
from ..terminal.global_options import get_command_actor
from ..terminal.text import as_json, format_duration, format_usage, print_to_stderr


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
        print_to_stderr(change_budget_and_wait(store, summary, limits))
    if limits is None or is_json:
        with open_reader(store) as reader:
            report = Report.from_entries(reader.read_entries(summary.id))
        budget, usage = report.budget or Budget(), structs.replace(report.usage, seconds=report.seconds)
        answer = {"run": report.run, "budget": structs.asdict(budget), "usage": structs.asdict(usage)}
        click.echo(as_json({"schema": SCHEMA, **answer}) if is_json else format_budget(report))


def change_budget_and_wait(store: StoreAddress, summary: RunSummary, limits: Budget) -> str:
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


def format_budget(report: Report) -> str:
    """Return the budget and the usage of a run as text."""
    return (
        f"budget  {format_limits(report.budget)}\nused    {format_usage(report.usage)} in "
        f"{format_duration(report.seconds)}"
    )
