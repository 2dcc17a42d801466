"""`podium run`: give a request to an agent and follow it to the answer."""

from __future__ import annotations

from pathlib import Path

import anyio
import click

from ...app import RunOptions
from ...engines.model.providers import REHEARSAL
from ...roster.team_keys import MODES
from ...setup.settings import Settings
from ...system.locations import find_repo
from ...values.agent import Budget, Mode
from ...values.event import SCHEMA
from ...values.plain_text import format_count
from ..terminal import exit_codes
from ..terminal.budget_text import BudgetParamType
from ..terminal.follow_run import work_on_run
from ..terminal.options import permissions_option, read_text_argument
from ..terminal.outcome_text import result_fields
from ..terminal.prompting import is_attended, is_input_disabled, no_input_option
from ..terminal.run_output import OutputOptions, output_options
from ..terminal.text import as_json, print_to_stderr

RUNNABLE_MODES = tuple(mode for mode in MODES if mode != "collaborate")
"""The modes that a team can work in; the other one is only read as yet."""


@click.command("run")
@click.argument("agent")
@click.argument("request")
@click.option(
    "--repo", type=click.Path(exists=True, file_okay=False, path_type=Path), help="The repository to work in."
)
@click.option("--model", help="What agents think with that name no model of their own, such as openai:gpt-5-mini.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Rehearse it: the whole flow, and no model is asked.")
@click.option("--budget", type=BudgetParamType(), help="What the run may use, such as usd=2,tokens=200000,seconds=600.")
@click.option("--mode", type=click.Choice(RUNNABLE_MODES), help="How the agent's team works, whatever its file says.")
@click.option("--reflect", "reflects", is_flag=True, help="Work on it again until nothing is missing; also alone.")
@click.option("--max", "most", type=click.IntRange(min=1), help="So many iterations at most, with --reflect.")
@permissions_option
@click.option("--no-sandbox", "is_bare", is_flag=True, help="Run commands without a sandbox; shown and recorded.")
@click.option("--park", "parks", is_flag=True, help="Without a terminal, keep what needs leave and pause the run.")
@click.option(
    "--detach", "is_detached", is_flag=True, help="Work on it in the background, and return at once with its id."
)
@no_input_option
@output_options
def run_command(
    agent: str,
    request: str,
    repo: Path | None,
    model: str | None,
    is_dry: bool,
    budget: Budget | None,
    mode: Mode | None,
    reflects: bool,
    most: int | None,
    permission_mode: str | None,
    parks: bool,
    is_bare: bool,
    is_detached: bool,
    **output: bool,
) -> int:
    """Give REQUEST to AGENT and follow the run until it ends. A REQUEST of - is read from standard input.

    The answer goes to standard output, everything else to standard error. Ctrl-C interrupts the
    run, which can be resumed; a second Ctrl-C leaves at once. What agents may not do by themselves
    is asked here; without a terminal it is refused.
    """
    shown = OutputOptions(**output)
    text = read_text_argument(request)
    place = find_repo(repo or Path())
    settings = Settings.load(
        repo=place,
        model=REHEARSAL if is_dry else model or None,
        budget=budget,
        permission_mode=permission_mode,
        unattended="park" if parks else None,
        sandbox=False if is_bare else None,
    )
    require_compatible_options(mode, reflects=reflects, most=most)
    run_options: RunOptions = {
        "repo": place,
        "is_attended": is_attended(),
        "mode": "reflect" if reflects else mode,
        "max_iterations": most,
    }
    if is_detached:
        if is_bare or is_dry:
            raise click.UsageError("--detach works in the background and in the sandbox; it goes with neither of these")
        return start_detached_run(settings, place, agent, text, run_options, is_json=shown.is_json)
    ending = work_on_run(settings, lambda app: app.start(agent, text, **run_options), shown.make_view)
    code = shown.print_ending(ending)
    if shown.is_json:
        click.echo(as_json(result_fields(ending.result)))
    if is_dry and ending.result is not None:
        usage = ending.result.usage
        print_to_stderr(
            f"dry run: {format_count(usage.calls, 'model call')} and about {format_count(usage.tokens, 'token')}, "
            "an estimate at four characters a token from rehearsed replies; no model was asked"
        )
    return code


def require_compatible_options(mode: Mode | None, *, reflects: bool, most: int | None) -> None:
    """Refuse options that contradict each other."""
    if reflects and mode not in (None, "reflect"):
        raise click.UsageError(f"--reflect is the mode reflect; it goes with no --mode {mode}")
    if most is not None and mode not in (None, "reflect"):
        raise click.UsageError(f"--max goes with --reflect, and not with --mode {mode}, which has no iterations")


def start_detached_run(
    settings: Settings, place: Path, agent: str, request: str, run_options: RunOptions, *, is_json: bool
) -> int:
    """Leave a run to the commander, and say which it is."""
    run = anyio.run(_enqueue_run, settings, place, agent, request, run_options)
    click.echo(as_json({"schema": SCHEMA, "id": run}) if is_json else run)
    print_to_stderr(f"it works in the background; podium show {run} tells how it stands, podium approvals what it asks")
    return exit_codes.GOAL_MET


async def _enqueue_run(settings: Settings, place: Path, agent: str, request: str, run_options: RunOptions) -> str:
    """Write a run down for a commander, which works on it in the repository itself; its id."""
    from ...app import App  # here, because the help needs none of it
    from ...values.worker_task import WorkerTask
    from ...workers.delegate import enqueue_worker_run, start_commander
    from ...workers.provider_keys import announce_keys

    async with App(settings) as app:
        worker_task = WorkerTask(
            root=str(place),
            path=str(place),
            is_here=True,
            is_unattended=is_input_disabled(),
            max_restarts=settings.max_restarts,
        )
        with announce_keys(settings.store) as delivery:
            run = await enqueue_worker_run(app.launcher, agent, request, worker_task, run=delivery.run, **run_options)
            start_commander(settings, delivery=delivery)
    return run
