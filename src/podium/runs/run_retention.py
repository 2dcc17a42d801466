"""Choose the runs that are old enough to be removed from the store, archive them and remove them.

Only runs that have ended are removed. A run is kept if another run that is kept refers to it, if it has made a
decision that is in force, if it has a worktree, or if a person has pinned it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from ..store.reader import RunSummary, StoreReader
from ..store.store_connection import open_for_reading, translate_errors
from ..store.store_export import archive_run, remove_run
from ..values.event import RunEnded
from ..values.request import Outcome
from ..values.store_address import StoreAddress
from ..views.decision_record import DecisionRecord, collect_decisions

ENDED_STATES: tuple[Outcome, ...] = ("succeeded", "failed", "timed_out", "cancelled")
"""The states of runs that can be removed."""


def select_removable(store: StoreAddress, *, before: float, states: Collection[str]) -> list[RunSummary]:
    """Return the runs that ended before this time in one of these states and are no longer needed, newest first."""
    with StoreReader(store) as reader:
        runs, damaged = reader.read_run_list()
        decisions = collect_decisions(reader.read_decision_entries())
    in_force = {one.run for one in decisions if one.status == "accepted"}
    needed = in_force | _find_pinned(store) | _find_runs_with_worktrees(store) | {run.id for run in damaged}
    wanted = {run.id for run in runs if _is_old(run, before, states)} - needed
    references = _find_references(runs, decisions)
    waiting = [run.id for run in runs if run.id not in wanted]
    while waiting:
        kept = references[waiting.pop()] & wanted
        wanted -= kept
        waiting += kept
    return [run for run in runs if run.id in wanted]


def archive_and_remove(store: StoreAddress, run: str, folder: Path | None) -> None:
    """Archive a run to a file in `folder`, unless `folder` is None, and then remove it from the store."""
    if folder is not None:
        archive_run(store, run, make_archive_path(folder, run))
    remove_run(store, run)


def make_archive_path(folder: Path, run: str) -> Path:
    """Return the path of a run's archive file."""
    return folder / f"{quote(run, safe='')}.jsonl.gz"


def _find_references(runs: Collection[RunSummary], decisions: Collection[DecisionRecord]) -> defaultdict[str, set[str]]:
    """Return the runs that each run refers to.

    A run refers to its parent, its workers, its original run, and the runs that it continues or waits for.
    A run that made a decision also refers to the run that replaced the decision, because the old decision would be in
    force again if only the later run were removed.
    """
    references: defaultdict[str, set[str]] = defaultdict(set)
    for run in runs:
        started = run.started
        references[run.id] |= {started.forked_from.partition("@")[0], started.after}
        if started.errand is not None:
            references[run.id] |= {started.errand.parent, *started.errand.after}
            references[started.errand.parent].add(run.id)
    made_in = {(one.state.proposal.repo, one.id): one.run for one in decisions}
    for one in decisions:
        if one.superseded_by:
            references[one.run].add(made_in[one.state.proposal.repo, one.superseded_by])
    return references


def _is_old(run: RunSummary, before: float, states: Collection[str]) -> bool:
    last = run.last
    return isinstance(last.event, RunEnded) and last.event.outcome in states and last.at < before


def _find_pinned(store: StoreAddress) -> set[str]:
    return _select_runs(store, "SELECT run FROM placement WHERE pinned = 1")


def _find_runs_with_worktrees(store: StoreAddress) -> set[str]:
    table = "worktree" if isinstance(store, Path) else "worktree_of_host"
    return _select_runs(store, f"SELECT run FROM {table} WHERE state <> 'gone'")


def _select_runs(store: StoreAddress, query: str) -> set[str]:
    with translate_errors(store), closing(open_for_reading(store)) as connection:
        return {str(run) for (run,) in connection.execute(query)}
