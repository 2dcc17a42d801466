"""`podium fork` and `retry`: start a new run that shares the timeline of another run up to a position.

A retry is a fork from where the run failed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import anyio
import click

from ...app import App
from ...files.settings import Settings
from ...runs import find
from ...runs.queries.run_lookup import open_reader
from ...runs.run_fork import ForkedRun, NewFork, NewRetry, fork_run, retry_run
from ...values.agent import Budget
from ...values.plain_text import format_count
from ..output.agent_text import ResultDocument
from ..output.budget_text import BudgetParamType
from ..output.command_options import (
    build_overrides,
    get_command_actor,
    no_sandbox_option,
    park_option,
    permissions_option,
    read_text_argument,
)
from ..output.run_output import OutputOptions, output_options
from ..output.terminal_input import no_input_option
from ..output.text import as_json, print_to_stderr
from .resume import follow_resumed_run, load_run_settings

CreateFork = Callable[[App], Awaitable[ForkedRun]]


@click.command("fork")
@click.argument("run")
@click.option(
    "--at",
    default="",
    metavar="SNAPSHOT|SEQ",
    help="Snapshot, or number of the last entry to share. Default: the last snapshot, or the last entry if there is no "
    "snapshot. With --decide, the default is the last entry before that decision was made.",
)
@click.option(
    "--request", metavar="TEXT", help="Message to the first agent, and to all members of a collaborating team."
)
@click.option(
    "--decide", "choice", metavar="DECISION=OPTION", help="Choose another option in one of the run's decisions."
)
@click.option("--budget", type=BudgetParamType(), help="New limits; usage before the fork counts towards them.")
@permissions_option
@no_sandbox_option
@park_option
@no_input_option
@output_options
def fork_command(
    run: str,
    at: str,
    request: str | None,
    choice: str | None,
    budget: Budget | None,
    permission_mode: str | None,
    is_bare: bool,
    parks: bool,
    **output: bool,
) -> int:
    """Start a new run that shares the timeline of RUN up to a position, and follow it.

    Steps that RUN had finished by then are not repeated, and its model calls are not made again. Approvals
    are not shared: Podium asks again about actions that need permission. In a git repository, the new run
    works in its own worktree. RUN itself does not change.
    """
    shown = OutputOptions(**output)
    overrides = build_overrides(permission_mode=permission_mode, is_bare=is_bare, parks=parks)
    source = open_source(run, overrides)
    decision, option = ("", "") if choice is None else parse_choice(choice)
    new = NewFork(
        at=at,
        request="" if request is None else read_text_argument(request),
        decision=decision,
        option=option,
        budget=budget,
    )
    by = get_command_actor()
    return _work_on_fork(source.settings, lambda app: fork_run(app.runs, source.run, new, by=by), shown, overrides)


class Source(NamedTuple):
    """A run to fork, and the settings of its repository."""

    run: str
    settings: Settings


def open_source(run: str, overrides: dict[str, Any]) -> Source:
    """Find a run to fork, and load the settings of its repository."""
    settings = Settings.load(**overrides)
    id = find.resolve(settings.store, run).run
    with open_reader(settings.store) as reader:
        started = reader.read_summary(id).started
    return Source(id, load_run_settings(settings, started, overrides))


def _work_on_fork(settings: Settings, create_fork: CreateFork, shown: OutputOptions, overrides: dict[str, Any]) -> int:
    """Create a fork, print its description, work on the fork until it ends, and return the exit code."""

    async def create_with_app() -> ForkedRun:
        async with App(settings) as app:
            return await create_fork(app)

    forked = anyio.run(create_with_app)
    if shown.is_verbose:
        print_to_stderr(_describe_fork(forked))
        for notice in forked.notices:
            print_to_stderr(f"notice: {notice}")
    ending = follow_resumed_run(settings, forked.id, shown, overrides)
    code = shown.print_ending(ending)
    if shown.is_json:
        click.echo(as_json(ResultDocument.of(ending.result)))
    return code


def _describe_fork(forked: ForkedRun) -> str:
    """Return a sentence that describes a new fork."""
    calls, checkout = format_count(forked.shared_calls, "model call"), forked.checkout
    where = f"; it works on {checkout.branch} in {checkout.directory}" if checkout.branch else ""
    return f"run {forked.id}: forked from run {forked.source} at entry {forked.at}, with {calls} shared{where}"


def parse_choice(text: str) -> tuple[str, str]:
    """Return the decision and the option in `DECISION=OPTION`. Raise UsageError if the text has a different form."""
    decision, equals, option = text.partition("=")
    if not (decision and equals and option):
        raise click.UsageError(f"invalid value for --decide: {text!r}; use DECISION=OPTION")
    return decision, option


@click.command("retry")
@click.argument("run")
@click.option("--from", "start", default="", metavar="STEP|AGENT", help="Plan step or agent to restart from.")
@click.option(
    "--budget", type=BudgetParamType(), help="New limits; usage already recorded for RUN counts towards them."
)
@permissions_option
@no_sandbox_option
@park_option
@no_input_option
@output_options
def retry_command(
    run: str,
    start: str,
    budget: Budget | None,
    permission_mode: str | None,
    is_bare: bool,
    parks: bool,
    **output: bool,
) -> int:
    """Retry RUN, which must have ended, from just before it failed or was stopped, and follow the new run.

    The new run is a fork of RUN: steps that RUN had finished are not repeated. If a model call failed or
    a limit was reached, the run continues with that call; if an agent's own work failed, that agent or its
    plan step starts again.
    """
    shown = OutputOptions(**output)
    overrides = build_overrides(permission_mode=permission_mode, is_bare=is_bare, parks=parks)
    source = open_source(run, overrides)
    new, by = NewRetry(start=start, budget=budget), get_command_actor()
    return _work_on_fork(source.settings, lambda app: retry_run(app.runs, source.run, new, by=by), shown, overrides)
