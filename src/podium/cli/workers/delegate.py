"""`podium delegate`: start a worker on a task in the background, on its own branch."""

from __future__ import annotations

import os
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click

from ...core.placement import WorkerOptions
from ...files.model_role import ROLES
from ...files.settings import Settings
from ...system.locations import find_repo
from ...values.event import SCHEMA, Noticed
from ...values.worker_task import DEFAULT_WORKER_AGENT
from ..output.budget_text import BudgetParamType
from ..output.command_options import get_command_actor, read_text_argument
from ..output.model_options import choose_model
from ..output.terminal_input import is_input_disabled, no_input_option
from ..output.text import as_json, print_to_stderr

if TYPE_CHECKING:
    from ...workers.worker_options import Choose


class FiniteSeconds(click.FloatRange):
    """A parameter type for a number of seconds that is neither infinite nor NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = float(super().convert(value, param, ctx))
        return seconds if isfinite(seconds) else self.fail(f"{value!r} is not a finite number of seconds", param, ctx)


@click.command("delegate")
@click.argument("branch")
@click.argument("task")
@click.option("--agent", default=DEFAULT_WORKER_AGENT, show_default=True, help="Agent that does the task.")
@click.option("--model", help="Model for the worker, e.g. openai:gpt-5-mini.")
@click.option(
    "--provider", help="Provider of the model; without --model, the provider's default or only model is used."
)
@click.option("--engine", help="Engine for the worker.")
@click.option("--role", help=f"Role from the settings, or one of {', '.join(ROLES)}.")
@click.option("--auto-approve", "approved", metavar="TOOL,…", help="Tools or permission rules to allow without asking.")
@click.option("--after", multiple=True, metavar="BRANCH", help="Start when the worker on BRANCH has succeeded.")
@click.option("--base", default="", help="Commit that BRANCH starts from; default: the checked-out commit.")
@click.option(
    "--also",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    metavar="DIR",
    help="Also work in the repository in DIR; can be repeated.",
)
@click.option("--timeout", type=FiniteSeconds(min=1), help="Stop after this many seconds and keep partial results.")
@click.option("--max-turns", type=click.IntRange(min=1), help="Maximum number of model calls.")
@click.option("--budget", type=BudgetParamType(), help="Limits for the worker, e.g. usd=2,tokens=200000.")
@click.option("--max-restarts", type=click.IntRange(min=0), help="Maximum number of restarts after a crash.")
@click.option("--label", "labels", multiple=True, help="On a fleet: run on a host with this label.")
@click.option(
    "--priority",
    type=int,
    default=0,
    help="On a fleet: priority of the worker; workers with higher numbers start first.",
)
@click.option("--times", type=click.IntRange(2, 10), help="Do the task this many times and keep the best result.")
@click.option(
    "--choose",
    type=click.Choice(("checks", "judge", "person")),
    help="Who chooses the best result of --times; default: judge.",
)
@click.option("--read-only", "is_reader", is_flag=True, help="Only read files; the worker gets no checkout.")
@no_input_option
@click.option("--repo", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Repository to work in.")
@click.option("--json", "is_json", is_flag=True, help="Print the worker as JSON.")
def delegate_command(
    branch: str,
    task: str,
    approved: str | None,
    provider: str | None,
    agent: str,
    repo: Path | None,
    is_json: bool,
    times: int | None,
    choose: Choose | None,
    **option_values: Any,
) -> None:
    """Start a worker that does TASK on BRANCH, in its own process and checkout, and print its run id.

    The command does not wait for the worker. If TASK is -, it is read from standard input. podium approvals
    lists the worker's permission requests, and podium workers shows its state.
    With --times, several workers do the task, each in its own checkout. The checks in the settings run on each
    result, and a judge or a person chooses among the results that pass. BRANCH gets the chosen result; the others stay
    on their own branches.
    With --also, the worker gets a checkout on BRANCH in each repository, and podium merge merges them together.
    """
    place = find_repo(repo or Path())
    settings = Settings.load(repo=place)
    option_values["model"] = choose_model(provider, option_values["model"], settings, os.environ)
    rules = tuple(filter(None, map(str.strip, (approved or "").split(","))))
    options = WorkerOptions(**option_values, approved=rules, is_unattended=is_input_disabled())
    if options.model and not settings.model:
        # If a model is specified but its provider cannot be reached, fail instead of falling back to a rehearsal.
        settings = Settings.load(repo=place, model=options.model)
    run = anyio.run(_delegate_task, settings, place, agent, branch, read_text_argument(task), options, times, choose)
    if options.labels:
        _print_notices(settings, run)
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "id": run, "branch": branch}))
    else:
        click.echo(run)
        print_to_stderr(
            f"{branch}: delegated to a worker; see podium workers for its state and podium approvals for its requests"
        )


def _print_notices(settings: Settings, run: str) -> None:
    """Print the notices on a new run's timeline, for example that no host has the labels that the run requires."""
    from ...store.reader import StoreReader  # imported here to keep start-up fast: few workers have labels

    with StoreReader(settings.store) as reader:
        for entry in reader.read_entries(run):
            if isinstance(entry.event, Noticed):
                print_to_stderr(entry.event.text)


async def _delegate_task(
    settings: Settings,
    place: Path,
    agent: str,
    branch: str,
    task: str,
    options: WorkerOptions,
    times: int | None,
    choose: Choose | None,
) -> str:
    from ...app import App  # imported here to keep start-up fast: the help does not need it
    from ...workers.delegation import NewWorker, delegate

    worker = NewWorker(at=place, branch=branch, task=task, agent=agent, options=options, times=times, choose=choose)
    async with App(settings) as app:
        return await delegate(app.runs, settings, worker, by=get_command_actor())
