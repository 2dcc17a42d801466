"""`podium resume`: go on with runs where they were left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...runs.run_lookup import found, looking
from ...runs.run_state import is_worker, state
from ...setup.settings import Settings
from ...values.errors import RunHeld
from ...values.event import SCHEMA, RunStarted
from ...views.worker_state import AT_REST, WorkerState
from ..terminal import exit_codes
from ..terminal.attendance import is_attended, no_input
from ..terminal.follow_run import Ending, worked
from ..terminal.measure import counted
from ..terminal.outcome_text import result_fields
from ..terminal.permission_option import permissions_option
from ..terminal.run_output import Output, output_options
from ..terminal.say import say
from ..terminal.text import as_json
from ..workers.resume import go_on, told_of
from ..workers.worker_lookup import seen


@click.command("resume")
@click.argument("run", required=False)
@click.option("--park", "parks", is_flag=True, help="Without a terminal, keep what needs leave and pause the run.")
@click.option("--no-sandbox", "is_bare", is_flag=True, help="Run commands without a sandbox; shown and recorded.")
@permissions_option
@no_input
@output_options
def command(run: str | None, parks: bool, is_bare: bool, permission_mode: str | None, **output: bool) -> int:
    """Go on with RUN where it was left; without RUN, with every run that was interrupted, the oldest first.

    What was done before is not done again: it is read from the timeline. A paused run goes on only
    when it is named. Workers are gone on with in the background, by their commander.
    """
    shown = Output(**output)
    typed: dict[str, Any] = {
        "unattended": "park" if parks else None,
        "permission_mode": permission_mode,
        "sandbox": False if is_bare else None,
    }
    settings = Settings.load(**typed)
    if run is None:
        return _all(settings, shown, typed)
    id = found(settings.store, run)
    if workers := _workers(settings.store, [id]):
        go_on(settings, workers)
        if shown.is_talkative:
            say(told_of(workers))
        if shown.is_json:
            click.echo(as_json({"schema": SCHEMA, "runs": [], "workers": _fields(workers)}))
        return exit_codes.GOAL_MET
    ending = resumed(settings, id, shown, typed)
    code = shown.tell(ending)
    if shown.is_json:
        click.echo(as_json(result_fields(ending.result)))
    return code


def resumed(settings: Settings, run: str, shown: Output, typed: dict[str, Any]) -> Ending:
    """What comes of going on with a run, in the settings of its repository and with what was typed."""
    with looking(settings.store) as reader:
        past = reader.entries(run)
    started = past[0].event
    assert isinstance(started, RunStarted)
    if started.repo:
        settings = Settings.load(repo=Path(started.repo), **typed)
    return worked(settings, lambda app: app.resume(run, is_attended=is_attended()), shown.view, past=past)


def resumable(store: Path) -> list[str]:
    """The runs that were interrupted, the oldest first; workers and those that wait to be begun among them."""
    if not store.exists():
        return []
    with looking(store) as reader:
        return [summary.id for summary in reversed(reader.runs()) if state(summary) in ("queued", "resumable")]


def _workers(store: Path, runs: list[str]) -> list[WorkerState]:
    """Those of the runs that are workers'."""
    if not runs:
        return []
    with looking(store) as reader:
        return seen(store, [run for run in runs if is_worker(reader.summary(run))])


def _fields(workers: list[WorkerState]) -> list[dict[str, str]]:
    return [{"id": worker.run, "branch": worker.errand.branch} for worker in workers]


def _all(settings: Settings, shown: Output, typed: dict[str, Any]) -> int:
    """Go on with all of them, one after the other; the exit code is that of the first without an answer."""
    left = resumable(settings.store)
    workers = _workers(settings.store, left)
    waiting = [run for run in left if run not in {worker.run for worker in workers}]
    # A commander may have taken some of them up meanwhile.
    workers = [worker for worker in workers if worker.state in AT_REST]
    if workers:
        go_on(settings, workers)
        if shown.is_talkative:
            say(told_of(workers))
    if shown.is_talkative and (waiting or not workers):
        say(f"going on with {counted(len(waiting), 'run')}: {', '.join(waiting)}" if waiting else "nothing to resume")
    codes: list[int] = []
    results = []
    for run in waiting:
        try:
            ending = resumed(settings, run, shown, typed)
        except RunHeld as error:
            say(str(error))
            continue
        codes.append(shown.tell(ending))
        results.append(result_fields(ending.result))
        if ending.signal is not None:
            break
    if shown.is_json:
        click.echo(as_json({"schema": SCHEMA, "runs": results, "workers": _fields(workers)}))
    return next(
        (code for code in reversed(codes) if code > exit_codes.SIGNALLED),
        next(filter(None, codes), exit_codes.GOAL_MET),
    )
