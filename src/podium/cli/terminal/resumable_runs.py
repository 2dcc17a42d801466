"""Find the runs to resume if `podium resume` is called without a run, and ask the user to choose."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from ...runs.queries.run_lookup import open_reader
from ...store.progress_files import require_no_recorded_runs
from ...store.reader import RunSummary
from ...system.locations import format_path
from ...values.phase import IDLE_PHASES
from ...values.plain_text import format_count
from ...values.store_address import StoreAddress
from ...views.worker_state import WorkerState
from ...workers.commander_socket import commander_socket_path, is_commander_listening
from ...workers.queries.worker_lookup import load_readable_states
from .text import escape_for_terminal, fit_columns, format_age, print_to_stderr

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


def find_resumable_runs(store: StoreAddress) -> ResumableRuns:
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


def choose_runs(found: ResumableRuns) -> ResumableRuns | None:
    """Ask which of several runs to resume. Return None if the user chooses none of them."""
    for line in format_resumable_runs(found):
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


def format_resumable_runs(found: ResumableRuns) -> list[str]:
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


def describe_nothing_to_resume(paused: Sequence[str]) -> str:
    """Return a message that no interrupted run can be resumed and, if runs are paused, how to resume those."""
    if not paused:
        return "nothing to resume"
    if len(paused) == 1:
        return f"no interrupted runs to resume, but 1 run is paused; to resume it: podium resume {paused[0]}"
    return (
        f"no interrupted runs to resume, but {len(paused)} runs are paused; "
        "to resume one, give its id (podium ps lists the runs)"
    )
