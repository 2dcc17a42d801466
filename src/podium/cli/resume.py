"""`podium resume`: go on with runs where they were left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import RunHeld
from ..event import SCHEMA, RunStarted
from ..settings import Settings
from . import exits
from .asking import is_attended
from .looking import found, looking
from .measure import counted
from .outcome import result_fields
from .output import Output, output_options
from .permissions import permissions_option
from .say import say
from .state import state
from .text import as_json
from .work import Ending, worked


@click.command("resume")
@click.argument("run", required=False)
@click.option("--park", "parks", is_flag=True, help="Without a terminal, keep what needs leave and pause the run.")
@click.option("--no-sandbox", "is_bare", is_flag=True, help="Run commands without a sandbox; shown and recorded.")
@permissions_option
@output_options
def command(run: str | None, parks: bool, is_bare: bool, permission_mode: str | None, **output: bool) -> int:
    """Go on with RUN where it was left; without RUN, with every run that was interrupted, the oldest first.

    What was done before is not done again: it is read from the timeline. A paused run goes on only
    when it is named.
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
    ending = resumed(settings, found(settings.store, run), shown, typed)
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
    """The runs that were interrupted, the oldest first."""
    if not store.exists():
        return []
    with looking(store) as reader:
        return [summary.id for summary in reversed(reader.runs()) if state(summary) == "resumable"]


def _all(settings: Settings, shown: Output, typed: dict[str, Any]) -> int:
    """Go on with all of them, one after the other; the exit code is that of the first without an answer."""
    waiting = resumable(settings.store)
    if shown.is_talkative:
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
        click.echo(as_json({"schema": SCHEMA, "runs": results}))
    return next((code for code in reversed(codes) if code > exits.SIGNALLED), next(filter(None, codes), exits.GOAL_MET))
