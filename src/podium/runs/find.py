"""Find the run that a person named. Every interface calls `resolve`, so that all of them accept the same names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..store.progress_files import require_no_recorded_runs
from ..store.reader import RunSummary, StoreReader
from ..system.locations import find_repo
from ..values.errors import Mistake, NoSuchRun, StoreCorrupt
from ..values.store_address import StoreAddress

if TYPE_CHECKING:
    from ..store.worker_index import WorkerRow

LAST = "last"
"""The name of the newest run in the repository that no other run started."""

Wanted = Literal["run", "agent", "worker"]

_RESULT_BRANCH = re.compile(r"podium/([0-9a-f]+)/(?:result|best)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The run that a person named, and the agent in it. `agent` is empty if none was named."""

    run: str
    agent: str = ""


def resolve(
    store: StoreAddress | StoreReader,
    ref: str | None,
    *,
    repo: Path | None = None,
    wanted: Wanted = "run",
    is_candidate: Callable[[RunSummary], bool] | None = None,
) -> Found:
    """Return the run that a person named, and the agent if one was named.

    `ref` is one of these, and the first that matches is used: the id of a run; the branch or name of a worker, of which
    the newest is meant; the branch with a team's result; `last`; a prefix of a run's id. Branches, names and `last`
    refer to the repository that contains the folder `repo`, by default the current folder. If an agent is wanted, its
    name can follow after a slash. If a worker is wanted, only the runs of workers match.

    If `ref` is None, return the only run in the repository that is a candidate or, without `is_candidate`, the last
    run. An empty string matches nothing, so that a variable without a value names no run. Raise NoSuchRun unless
    exactly one run matches, Mistake unless exactly one worker matches, and StoreCorrupt if the store was deleted.
    """
    if ref is not None and ("\0" in ref or ref.encode(errors="ignore").decode() != ref):
        raise NoSuchRun(f"{ref!r} is not valid text, so it names no run; run podium ps to list the runs")
    if wanted == "worker" and ref is not None:
        return Found(run=_find_worker(store.path if isinstance(store, StoreReader) else store, ref, repo))
    if isinstance(store, StoreReader):
        lookup = _Lookup(store, repo)
        return Found(run=lookup.find_only(is_candidate)) if ref is None else lookup.find(ref, wanted)
    _require_store(store, ref)
    with StoreReader(store) as reader:
        return resolve(reader, ref, repo=repo, wanted=wanted, is_candidate=is_candidate)


def _require_store(store: StoreAddress, ref: str | None) -> None:
    """Raise NoSuchRun if the store does not exist yet, and StoreCorrupt if it was deleted."""
    if not store.exists():
        require_no_recorded_runs(store)
        raise NoSuchRun(
            f"no runs yet{'' if ref is None else f', so there is no run {ref!r}'}: the store {store} does not exist; "
            "the first run creates it. If it was moved, set PODIUM_HOME or PODIUM_STORE to where it is now"
        )


@dataclass
class _Lookup:
    """Looks up runs in a store. `folder` is in the repository to which branches and names refer."""

    reader: StoreReader
    folder: Path | None

    @cached_property
    def root(self) -> str:
        return find_root(find_repo(self.folder or Path()))

    def find(self, ref: str, wanted: Wanted) -> Found:
        if run := self.find_by_full_name(ref):
            return Found(run=run)
        if wanted == "agent" and "/" in ref:
            branch, _, agent = ref.rpartition("/")
            if run := self.find_by_full_name(branch):
                return Found(run=run, agent=agent)
            ref, _, agent = ref.partition("/")
            return Found(run=self.reader.find_run(ref), agent=agent)
        return Found(run=self.reader.find_run(ref))

    def find_by_full_name(self, name: str) -> str:
        """Return the run with this id, worker or branch, or the last run if that is its name, or an empty string."""
        # A program names runs by their ids. No branch that an agent has chosen may come between.
        if self.reader.has_run(name):
            return name
        if name and (worker := self.find_worker(name)) is not None:
            return worker.run
        if (result := _RESULT_BRANCH.fullmatch(name)) is not None:
            return self.reader.find_run(result[1])
        return self.find_only(None) if name == LAST else ""

    def find_worker(self, name: str) -> WorkerRow | None:
        from ..store.worker_index import WorkerIndex  # imported here to keep start-up fast: an id does not need it

        return _choose_newest(WorkerIndex(self.reader.path).find_in_repository(self.root, name), self.root)

    def find_only(self, is_candidate: Callable[[RunSummary], bool] | None) -> str:
        """Return the only candidate, or the last run if `is_candidate` is None. Raise NoSuchRun if there is none."""
        if is_candidate is None:
            if (last := next(self.iter_runs(), None)) is None:
                raise NoSuchRun(f"no run was started in {self.root}; run podium ps to list the runs")
            return last.id
        found = [summary.id for summary in self.iter_runs() if is_candidate(summary)]
        if len(found) != 1:
            several = f"several runs in {self.root} could be meant: {', '.join(found)}; give the id of one of them"
            raise NoSuchRun(several if found else f"no such run in {self.root}; run podium ps to list the runs")
        return found[0]

    def iter_runs(self) -> Iterator[RunSummary]:
        """Yield the runs in the repository that no other run started, newest first."""
        find_cached_root = cache(lambda folder: find_root(Path(folder)))
        for run in self.reader.list_run_ids():
            try:
                summary = self.reader.read_summary(run)
            except (StoreCorrupt, NoSuchRun):
                continue  # one damaged run, or one without entries, must not hide the others
            started = summary.started
            if started.errand is not None and started.errand.parent:
                continue
            folder = started.repo if started.errand is None else started.errand.root
            if folder and find_cached_root(folder) == self.root:
                yield summary


def _find_worker(store: StoreAddress, name: str, folder: Path | None) -> str:
    """Return the run of a worker, given its run id, branch or name, or a prefix of its run id."""
    # Imported here to keep start-up fast: most commands do not look up workers.
    from ..store.worker_index import WorkerIndex
    from ..workspace.git.repository import Repository

    root = str(Repository.at(find_repo(folder or Path())).main_folder)
    worker_index = WorkerIndex(store)
    here, everywhere = worker_index.list_all(root), worker_index.list_all()
    if any(row.run == name for row in everywhere):
        return name
    if name and (worker := _choose_newest([row for row in here if row.name == name], root)) is not None:
        return worker.run
    if name == LAST and here:
        return here[-1].run
    matches = [row for row in everywhere if name and row.run.startswith(name)]
    if len(matches) == 1:
        return matches[0].run
    if matches:
        several = ", ".join(f"{row.run} ({row.name})" if row.name else row.run for row in matches)
        raise Mistake(f"{name!r} matches several workers: {several}; give more characters of the id")
    there = ", ".join(dict.fromkeys(row.name or row.run for row in here)) or "none yet"
    raise Mistake(f"worker {name!r} not found in this repository; available: {there}")


def _choose_newest(workers: Sequence[WorkerRow], root: str) -> WorkerRow | None:
    """Return the newest of the workers, which are sorted, or None if there are none.

    Workers in the repository itself take precedence over those that they have started on other machines.
    """
    return next((row for row in reversed(workers) if row.root == root), workers[-1] if workers else None)


def find_root(folder: Path) -> str:
    """Return the main folder of the repository that contains a folder or, without git, the folder itself."""
    from ..workspace.git.repository import Repository  # imported here to keep start-up fast

    try:
        return str(Repository.at(folder).main_folder)
    except Mistake:
        return str(folder.resolve())
