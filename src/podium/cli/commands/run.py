"""`podium run` and `follow`: follow a run that this command starts, or that another process is working on."""

from __future__ import annotations

import os
import time
from pathlib import Path

import anyio
import click
from anyio import create_task_group, move_on_after, sleep, to_thread
from msgspec import structs

from ...app import RunOptions
from ...engines.model.providers import REHEARSAL, find_provider
from ...files.settings import Settings
from ...runs import find
from ...runs.queries.dry_run_estimate import RunEstimate, estimate_dry_run
from ...runs.queries.run_lookup import open_reader
from ...runs.run_notifications import RunNotices
from ...runs.run_start import start_run
from ...runs.run_steering import POLL_SECONDS
from ...store.follower import Follower
from ...store.reader import StoreReader
from ...system.locations import find_repo
from ...values.agent import Budget
from ...values.event import SCHEMA
from ...values.plain_text import format_count, join_words
from ...values.store_address import StoreAddress
from ...values.team_modes import MODES, Mode
from ...views.run_state.tree import RunView
from ..output import exit_codes
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
from ..output.follow_run import REFRESH_SECONDS, RunEnding, work_on_run
from ..output.model_options import choose_model
from ..output.run_display import ProgressView
from ..output.run_output import OutputOptions, output_options
from ..output.terminal_input import is_attended, is_input_disabled, no_input_option
from ..output.terminal_notifier import make_terminal_notifier
from ..output.text import as_json, format_money, print_to_stderr

BASIS = (
    "estimated from simulated replies, at four characters per token; real replies are usually longer; "
    "no model was called"
)


MOST_IDLE_POLLS = 5
"""How many polling rounds to wait for a worker that has no process. A commander restarts workers that crash."""


@click.command("run")
@click.argument("agent")
@click.argument("request")
@click.option("--repo", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Repository to work in.")
@click.option("--model", help="Model for agents that do not specify one, e.g. openai:gpt-5-mini.")
@click.option(
    "--provider", help="Provider of the model; without --model, the provider's default or only model is used."
)
@click.option("--force-model", help="Model for all agents, in place of the models in their files.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Simulate the whole run without calling a model.")
@click.option("--budget", type=BudgetParamType(), help="Limits for the run, e.g. usd=2,tokens=200000,seconds=600.")
@click.option("--mode", type=click.Choice([*MODES]), help="Mode of the agent's team; overrides the one in its file.")
@click.option("--constraint", "constraints", multiple=True, metavar="TEXT", help="Constraint on the team's work.")
@click.option("--reflect", "reflects", is_flag=True, help="Repeat until the goal is met; also works without a team.")
@click.option("--max", "most", type=click.IntRange(min=1), help="Maximum number of iterations (with --reflect).")
@permissions_option
@no_sandbox_option
@park_option
@click.option(
    "--detach", "is_detached", is_flag=True, help="Run in the background: print the run id and return immediately."
)
@no_input_option
@output_options
def run_command(
    agent: str,
    request: str,
    repo: Path | None,
    model: str | None,
    provider: str | None,
    force_model: str | None,
    is_dry: bool,
    budget: Budget | None,
    mode: Mode | None,
    constraints: tuple[str, ...],
    reflects: bool,
    most: int | None,
    permission_mode: str | None,
    parks: bool,
    is_bare: bool,
    is_detached: bool,
    **output: bool,
) -> int:
    """Send REQUEST to AGENT and follow the run until it ends. If REQUEST is -, it is read from standard input.

    The answer goes to standard output, everything else to standard error. Ctrl-C interrupts the
    run, which can be resumed; a second Ctrl-C exits immediately. Permission requests are shown on
    the terminal; without a terminal, they are denied or, with --park, queued.
    """
    _require_compatible_options(mode, reflects=reflects, most=most, cannot_detach=is_detached and (is_bare or is_dry))
    shown = OutputOptions(**output)
    text = read_text_argument(request)
    place = find_repo(repo or Path())
    chosen = _choose_run_model(place, provider, model, force_model, is_dry=is_dry)
    overrides = build_overrides(permission_mode=permission_mode, is_bare=is_bare, parks=parks)
    settings = Settings.load(repo=place, model=REHEARSAL if is_dry else chosen, budget=budget, **overrides)
    run_options: RunOptions = {
        "repo": place,
        "is_attended": is_attended(),
        "mode": "reflect" if reflects else mode,
        "max_iterations": most,
        "force_model": force_model or "",
        "constraints": constraints,
        "leaves_no_traces": is_dry,
    }
    if is_detached:
        return _start_detached_run(settings, place, agent, text, run_options, is_json=shown.is_json)
    # The estimate is for the models that the real run would use.
    real_settings = Settings.load(repo=place, model=chosen) if is_dry else None
    return _follow_new_run(settings, agent, text, run_options, shown, real_settings)


def _follow_new_run(
    settings: Settings,
    agent: str,
    request: str,
    run_options: RunOptions,
    shown: OutputOptions,
    real_settings: Settings | None,
) -> int:
    """Start a run, follow it to its end and print how it ended. Return the exit code."""
    ending = work_on_run(
        settings,
        lambda app: start_run(app.runs, agent, request, run_options, by=get_command_actor()),
        shown.make_view,
        shows_notifications=shown.shows_notifications,
    )
    return _print_ending(shown, ending, settings.store, real_settings)


def _print_ending(shown: OutputOptions, ending: RunEnding, store: StoreAddress, real_settings: Settings | None) -> int:
    """Print how a run ended and return the exit code. With `real_settings`, also print what the real run would cost."""
    code = shown.print_ending(ending)
    document = ResultDocument.of(ending.result)
    answer = None if document is None else structs.asdict(document)
    if real_settings is not None and answer is not None:
        with open_reader(store) as reader:
            estimate = estimate_dry_run(reader, answer["run_id"], real_settings)
        answer["estimate"] = estimate
        print_to_stderr(_format_estimate(estimate))
    if shown.is_json:
        click.echo(as_json(answer))
    return code


def _choose_run_model(
    place: Path, provider: str | None, model: str | None, force_model: str | None, *, is_dry: bool = False
) -> str | None:
    """Return the model that the options specify, if any. Raise UsageError if the options conflict.

    For a dry run, no server is asked for its list of models.
    """
    if force_model is not None and (model is not None or provider is not None):
        raise click.UsageError("--force-model cannot be combined with --model or --provider; it replaces all models")
    if is_dry and provider is not None and model is None and not find_provider(provider).default_model:
        return f"{find_provider(provider).name}:any"
    if provider is not None:
        model = choose_model(provider, model, Settings.load(repo=place), os.environ)
    return force_model or model or None


def _require_compatible_options(mode: Mode | None, *, reflects: bool, most: int | None, cannot_detach: bool) -> None:
    """Raise UsageError if options conflict."""
    if cannot_detach:
        raise click.UsageError(
            "--detach cannot be combined with --no-sandbox or --dry-run; "
            "a background run cannot be a dry run, and the settings determine whether it uses the sandbox"
        )
    if reflects and mode not in (None, "reflect"):
        raise click.UsageError(f"--reflect means --mode reflect; it cannot be combined with --mode {mode}")
    if most is not None and mode not in (None, "reflect"):
        raise click.UsageError(f"--max needs --reflect; --mode {mode} has no iterations")


def _start_detached_run(
    settings: Settings, place: Path, agent: str, request: str, run_options: RunOptions, *, is_json: bool
) -> int:
    """Queue a run for the commander and print the run's id."""
    run = anyio.run(_enqueue_run, settings, place, agent, request, run_options)
    click.echo(as_json({"schema": SCHEMA, "id": run}) if is_json else run)
    print_to_stderr(
        f"running in the background; see podium show {run} for its state and podium approvals for its requests"
    )
    return exit_codes.GOAL_MET


async def _enqueue_run(settings: Settings, place: Path, agent: str, request: str, run_options: RunOptions) -> str:
    """Queue a run that the commander starts in the repository itself, not in a worktree. Return the run's id."""
    from ...app import App  # imported here for start-up time: the help does not need it
    from ...workers.delegation import BackgroundRun, enqueue_background_run

    new = BackgroundRun(
        agent=agent, request=request, place=place, options=run_options, is_unattended=is_input_disabled()
    )
    async with App(settings) as app:
        return await enqueue_background_run(app.runs, settings, new, by=get_command_actor())


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
        anyio.run(_follow_until_end, settings.store, id, run_view, view, notices)
    ending = _build_ending(run_view, view)
    code = shown.print_ending(ending)
    if shown.is_json:
        click.echo(as_json(ResultDocument.of(ending.result)))
    return code


async def _follow_until_end(
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


def _build_ending(run_view: RunView, view: ProgressView) -> RunEnding:
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


def _format_estimate(estimate: RunEstimate) -> str:
    """Return the estimate of a dry run as one line."""
    amount = f"{format_count(estimate.calls, 'model call')} and about {format_count(estimate.tokens, 'token')}"
    known, unknown = _format_known_cost(estimate), _format_unknown_cost(estimate)
    cost = f", {known}" if known else ""
    cost += f"{', and' if known else ';'} {unknown}" if unknown else ""
    return f"dry run: {amount}{cost}; {BASIS}"


def _format_known_cost(estimate: RunEstimate) -> str:
    """Format the cost of the models whose prices are known. Return an empty string if no price is known."""
    if estimate.usd is None:
        return ""
    shares = [f"{format_money(one.usd)} with {one.model}" for one in estimate.models if one.usd is not None]
    if not estimate.usd:
        return f"no cost for {join_words([one.model for one in estimate.models if one.usd is not None])}"
    if len(shares) == 1:
        return f"about {shares[0]}"
    return f"about {format_money(estimate.usd)} ({', '.join(shares)})"


def _format_unknown_cost(estimate: RunEstimate) -> str:
    """Return why part of the cost is not known, or an empty string if the whole cost is known."""
    names = [one.model for one in estimate.models if one.usd is None]
    if not names:
        return ""
    if not any(one.model for one in estimate.models):
        return "no model is configured, so the cost is not known"
    return f"the price of {join_words([name or 'the default model (not set)' for name in names])} is not known"
