"""`podium resume` and `workers resume`: resume runs that were interrupted or paused."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import click

from ...files.settings import Settings
from ...runs import find
from ...runs.queries.run_lookup import find_main_folder, open_reader
from ...runs.run_start import resume_run
from ...store.progress_files import require_no_recorded_runs
from ...store.reader import RunSummary
from ...store.run_creators import confirm_run
from ...store.run_integrity import accept_lost_entries, require_intact_run
from ...system.locations import format_path
from ...values.errors import Mistake, RunHeld
from ...values.event import SCHEMA, RunStarted
from ...values.phase import IDLE_PHASES
from ...values.plain_text import format_count
from ...values.store_address import StoreAddress
from ...views.worker_state import WorkerState
from ...workers.commander_socket import commander_socket_path, is_commander_listening
from ...workers.queries.worker_lookup import RepoContext, load_readable_states, load_worker_states
from ..output import exit_codes
from ..output.agent_text import ResultDocument
from ..output.command_options import (
    build_overrides,
    get_command_actor,
    json_option,
    no_sandbox_option,
    park_option,
    permissions_option,
)
from ..output.follow_run import RunEnding, work_on_run
from ..output.run_output import OutputOptions, output_options
from ..output.terminal_input import is_attended, no_input_option
from ..output.text import as_json, escape_for_terminal, fit_columns, format_age, print_to_stderr

ALL = "all"
NONE = "none"


class ResumableRuns(NamedTuple):
    """The interrupted runs, oldest first. Runs in `paused` are resumed only if the user gives their ids.

    All workers are resumed together, because one commander continues all of them.
    """

    own: Sequence[RunSummary] = ()
    workers: Sequence[WorkerState] = ()
    paused: Sequence[str] = ()

    @property
    def choices(self) -> int:
        """The number of choices. All workers together count as one choice."""
        return len(self.own) + bool(self.workers)

    def select(self, number: int) -> ResumableRuns:
        """Return only the choice with this number, counted from 1."""
        return ResumableRuns(own=self.own[number - 1 : number]) if number <= len(self.own) else self._replace(own=())


@click.command("resume")
@click.argument("run", required=False)
@click.option("--all", "is_all", is_flag=True, help="Resume every interrupted run, oldest first.")
@park_option
@no_sandbox_option
@click.option(
    "--accept-loss",
    "accepts_loss",
    is_flag=True,
    help="Resume RUN even though its last entries were lost; actions recorded in them may be repeated.",
)
@permissions_option
@no_input_option
@output_options
def resume_command(
    run: str | None,
    is_all: bool,
    parks: bool,
    is_bare: bool,
    accepts_loss: bool,
    permission_mode: str | None,
    **output: bool,
) -> int:
    """Resume RUN from where it stopped; without RUN, resume the run that was interrupted.

    If several runs were interrupted, they are listed, and you choose which to resume. Without a terminal, give RUN or
    --all. Finished steps are read from the timeline and not repeated. A paused run is resumed only if you give its id.
    Workers are resumed in the background, by their commander. Giving the id of a run whose creator is not known also
    confirms that its settings and agents may be used. A run that is waiting for a provider's limit to reset
    continues by itself when the limit resets; to continue it now, give its id.
    """
    if run is not None and is_all:
        raise click.UsageError("give a run or --all, not both")
    shown = OutputOptions(**output)
    overrides = build_overrides(permission_mode=permission_mode, is_bare=is_bare, parks=parks)
    settings = Settings.load(**overrides)
    _finish_interrupted_merges(settings)
    if run is None:
        if accepts_loss:
            raise click.UsageError("--accept-loss needs RUN; accept the loss for one run at a time")
        return _resume_interrupted_runs(settings, shown, overrides, is_all=is_all)
    id = find.resolve(settings.store, run).run
    if confirm_run(settings.store, id):
        print_to_stderr(f"confirmed run {id}: its record is used, although a host of the fleet may have written it")
    _require_intact_run(settings.store, id, accepts_loss=accepts_loss)
    if workers := _load_workers(settings.store, [id]):
        resume_workers(settings, workers)
        if shown.is_verbose:
            print_to_stderr(_format_resumed_workers(workers))
        if shown.is_json:
            _print_resumed([], workers)
        return exit_codes.GOAL_MET
    ending = follow_resumed_run(settings, id, shown, overrides)
    code = shown.print_ending(ending)
    if shown.is_json:
        click.echo(as_json(ResultDocument.of(ending.result)))
    return code


def _require_intact_run(store: StoreAddress, run: str, *, accepts_loss: bool) -> None:
    """Raise StoreCorrupt if a run was altered or has lost entries. With `accepts_loss`, lost entries are accepted."""
    with open_reader(store) as reader:
        rows = reader.read_rows(run)
    if accepts_loss:
        accept_lost_entries(store, run, rows)
    require_intact_run(store, run, rows)


def follow_resumed_run(settings: Settings, run: str, shown: OutputOptions, overrides: dict[str, Any]) -> RunEnding:
    """Resume a run with the settings of its repository and the given options, and return how it ended."""
    with open_reader(settings.store) as reader:
        past = reader.read_entries(run)
    started = past[0].started
    settings = load_run_settings(settings, started, overrides)
    return work_on_run(
        settings,
        lambda app: resume_run(app.runs, run, by=get_command_actor(), is_attended=is_attended()),
        shown.make_view,
        past=past,
        shows_notifications=shown.shows_notifications,
    )


def load_run_settings(settings: Settings, started: RunStarted, overrides: dict[str, Any]) -> Settings:
    """Return the settings of the repository that a run works in, or `settings` if the run has no repository."""
    if not started.repo:
        return settings
    # Like a worker, a fork uses the settings of the repository itself, because the user trusts only that folder. The
    # store is passed explicitly, because the repository's settings may name another store.
    return Settings.load(repo=Path(find_main_folder(started)), store=settings.store, **overrides)


def _load_workers(store: StoreAddress, runs: list[str]) -> list[WorkerState]:
    """Return the states of the workers among the given runs."""
    if not runs:
        return []
    with open_reader(store) as reader:
        return load_worker_states(store, [run for run in runs if reader.read_summary(run).is_worker])


def _print_resumed(runs: Sequence[ResultDocument | None], workers: Sequence[WorkerState]) -> None:
    resumed = [{"id": worker.run, "branch": worker.worker_task.branch} for worker in workers]
    click.echo(as_json({"schema": SCHEMA, "runs": runs, "workers": resumed}))


def _finish_interrupted_merges(settings: Settings) -> None:
    if not (settings.home / "merges").is_dir():
        return
    # Imported here to keep start-up fast: merges in several repositories are rare.
    from ...workers.merging.merge import finish_interrupted_moves

    anyio.run(partial(finish_interrupted_moves, settings, notice=print_to_stderr))


def _resume_interrupted_runs(
    settings: Settings, shown: OutputOptions, overrides: dict[str, Any], *, is_all: bool
) -> int:
    """Resume the interrupted runs. If there are several and `is_all` is False, the user chooses which to resume."""
    found = _find_resumable_runs(settings.store)
    if found.choices > 1 and not is_all:
        if not is_attended():
            for line in _format_resumable_runs(found):
                print_to_stderr(line)
            print_to_stderr("resume one with podium resume RUN, or all of them with podium resume --all")
            return exit_codes.USAGE
        chosen = _choose_runs(found)
        if chosen is None:
            print_to_stderr("nothing was resumed")
            return exit_codes.DENIED
        found = chosen
    if found.workers:
        resume_workers(settings, found.workers, wakes_early=False)
        if shown.is_verbose:
            print_to_stderr(_format_resumed_workers(found.workers))
    own_runs = [summary.id for summary in found.own]
    if shown.is_verbose and own_runs:
        print_to_stderr(f"resuming {format_count(len(own_runs), 'run')}: {', '.join(own_runs)}")
    elif shown.is_verbose and not found.workers:
        print_to_stderr(_describe_nothing_to_resume(found.paused))
    return _resume_runs(settings, own_runs, found.workers, shown, overrides)


def _resume_runs(
    settings: Settings,
    own_runs: Sequence[str],
    workers: Sequence[WorkerState],
    shown: OutputOptions,
    overrides: dict[str, Any],
) -> int:
    """Resume runs one after another. Return the exit code for a signal, if any, else the first non-zero exit code."""
    codes: list[int] = []
    results = []
    for run in own_runs:
        try:
            ending = follow_resumed_run(settings, run, shown, overrides)
        except (RunHeld, Mistake) as error:
            print_to_stderr(str(error))
            codes += [exit_codes.USAGE] if isinstance(error, Mistake) else []
            continue
        codes.append(shown.print_ending(ending))
        results.append(ResultDocument.of(ending.result))
        if ending.signal is not None:
            break
    if shown.is_json:
        _print_resumed(results, workers)
    return next(
        (code for code in reversed(codes) if code > exit_codes.SIGNALLED),
        next(filter(None, codes), exit_codes.GOAL_MET),
    )


def _find_resumable_runs(store: StoreAddress) -> ResumableRuns:
    """Return the unfinished runs that no process is working on, except those that cannot be read."""
    if not store.exists():
        require_no_recorded_runs(store)
        return ResumableRuns()
    with open_reader(store) as reader:
        states = [(summary, summary.phase) for summary in reversed(reader.read_run_list().readable)]
    interrupted = [summary for summary, state in states if state in ("queued", "resumable")]
    if not is_commander_listening(commander_socket_path(store)):
        # A commander continues these runs when the limits reset; without one, nobody would.
        interrupted += [summary for summary, state in states if state == "waiting"]
    workers = load_readable_states(store, [summary.id for summary in interrupted if summary.is_worker])
    return ResumableRuns(
        own=[summary for summary in interrupted if not summary.is_worker],
        # A commander may have started some workers since the list was read.
        workers=[worker for worker in workers if worker.phase in IDLE_PHASES],
        paused=[summary.id for summary, state in states if state == "paused"],
    )


def _choose_runs(found: ResumableRuns) -> ResumableRuns | None:
    """Ask which of several runs to resume. Return None if the user chooses none of them."""
    for line in _format_resumable_runs(found):
        print_to_stderr(line)
    question = f"Resume which? [1-{found.choices}, {ALL}, {NONE}]"
    while True:
        answer = click.prompt(question, err=True).strip().lower()
        if answer == ALL:
            return found
        if answer == NONE:
            return None
        if answer.isdecimal() and 1 <= int(answer) <= found.choices:
            return found.select(int(answer))
        print_to_stderr(
            f"{answer!r} is not one of the choices; enter a number from 1 to {found.choices}, {ALL} or {NONE}"
        )


def _format_resumable_runs(found: ResumableRuns) -> list[str]:
    """Return the list of runs to choose from, with a number for each choice."""
    what = [format_count(len(found.own), "run")] if found.own else []
    what += [format_count(len(found.workers), "worker")] if found.workers else []
    now = time.time()
    rows = [_format_row(number, summary, now) for number, summary in enumerate(found.own, 1)]
    if found.workers:
        names = ", ".join(escape_for_terminal(worker.name) for worker in found.workers)
        rows.append([str(len(rows) + 1), "workers", "", "", "", names])
    return [f"{' and '.join(what)} can be resumed:", *fit_columns(rows, most=shutil.get_terminal_size().columns)]


def _format_row(number: int, summary: RunSummary, now: float) -> list[str]:
    started = summary.started
    return [
        str(number),
        summary.id,
        escape_for_terminal(started.agent),
        format_age(now - summary.first.at),
        escape_for_terminal(format_path(Path(started.repo))) if started.repo else "",
        escape_for_terminal(" ".join(started.request.text.split())),
    ]


def _describe_nothing_to_resume(paused: Sequence[str]) -> str:
    """Return a message that no interrupted run can be resumed and, if runs are paused, how to resume those."""
    if not paused:
        return "nothing to resume"
    if len(paused) == 1:
        return f"no interrupted runs to resume, but 1 run is paused; to resume it: podium resume {paused[0]}"
    return (
        f"no interrupted runs to resume, but {len(paused)} runs are paused; "
        "to resume one, give its id (podium ps lists the runs)"
    )


@click.command("resume")
@click.argument("branches", metavar="[BRANCH]...", nargs=-1)
@json_option
@click.pass_obj
def workers_resume_command(context: RepoContext, branches: tuple[str, ...], is_json: bool) -> None:
    """Start a commander that continues the workers on BRANCH or, by default, all interrupted and queued workers.

    A paused worker is continued only if you specify it. A worker that is waiting for a provider's limit to reset
    continues automatically after the reset; specify the worker to continue it now.
    """
    named = [context.load_worker(branch) for branch in branches]
    states = ("queued", "resumable", "waiting_limit")
    to_resume = named or [worker for worker in context.load_workers() if worker.state in states]
    resumed = resume_workers(context.settings, to_resume, wakes_early=bool(named))
    if is_json:
        items = [{"id": worker.run, "branch": worker.worker_task.branch} for worker in resumed]
        click.echo(as_json({"schema": SCHEMA, "workers": items}))
    elif not resumed:
        print_to_stderr("no workers to resume; see podium workers for their states")
    else:
        print_to_stderr(_format_resumed_workers(resumed))


def _format_resumed_workers(workers: Iterable[WorkerState]) -> str:
    """Return the message that says which workers are being resumed."""
    names = ", ".join(worker.name for worker in workers)
    return f"resuming {names} in the background; run podium workers to see the state"


def resume_workers(
    settings: Settings, workers: Iterable[WorkerState], *, wakes_early: bool = True
) -> list[WorkerState]:
    """Start a commander to continue workers, including paused ones. Raise Mistake if one has ended or is active.

    With `wakes_early`, workers that are waiting for a provider's limit to reset continue now, without waiting any
    longer.
    """
    from ...workers import worker_resumption  # imported here for start-up time: --help does not need it

    return anyio.run(
        partial(
            worker_resumption.resume_workers,
            settings,
            list(workers),
            by=get_command_actor(),
            wakes_early=wakes_early,
        )
    )
