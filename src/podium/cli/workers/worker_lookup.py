"""Looking at workers from a command: which repository is meant, who works there, and how each stands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from ...setup.settings import Settings
from ...store.sqlite.reader import Reader
from ...store.sqlite.worker_index import Crew
from ...store.sqlite.worktree_ledger import Ledger
from ...system.locations import find_repo
from ...values.errors import PodiumError
from ...values.event import decode
from ...views.worker_state import HEARD, WorkerState, state_of
from ...workspace.git.repository import Repository
from ...workspace.worktrees.worktree import Worktrees
from ...workspace.worktrees.worktree_status import Standing

NOBODY = 'no workers yet; podium delegate BRANCH "task" hires one'

in_repo = click.option(
    "--repo", type=click.Path(exists=True, file_okay=False, path_type=Path), help="The repository; by default this one."
)
as_object = click.option("--json", "is_json", is_flag=True, help="Print it as JSON.")


@dataclass(frozen=True)
class There:
    """The repository that a command is about; nothing is looked for before it is needed."""

    named: Path | None = None

    @cached_property
    def place(self) -> Path:
        return find_repo(self.named or Path())

    @cached_property
    def settings(self) -> Settings:
        return Settings.load(repo=self.place)

    @property
    def store(self) -> Path:
        return self.settings.store

    @cached_property
    def repository(self) -> Repository:
        return Repository.at(self.place)

    @property
    def root(self) -> str:
        """The repository as workers' errands name it."""
        return str(self.repository.main)

    @property
    def worktrees(self) -> Worktrees:
        from ..commands.worktrees import worktrees_of  # here, because most of the time nothing is removed

        return worktrees_of(self.repository)

    def workers(self) -> list[WorkerState]:
        """The workers of the repository, in the order in which they were hired."""
        return seen(self.store, (hired.run for hired in Crew(self.store).all(self.root)))

    def worker(self, name: str) -> WorkerState:
        """The newest worker of a branch, or the one whose run's id begins so. Raises Mistake."""
        from ...workers.delegate import newest  # here, because a list needs none of it

        return seen(self.store, [newest(Crew(self.store), self.root, name).run])[0]


def seen(store: Path, runs: Iterable[str]) -> list[WorkerState]:
    """How the workers of these runs stand."""
    wanted = list(runs)
    if not wanted:
        return []
    with Reader(store) as reader:
        return [looked_at(reader, run) for run in wanted]


def looked_at(reader: Reader, run: str) -> WorkerState:
    """How one worker stands."""
    owner = reader.summary(run).owner
    entries = (decode(row.line) for row in reader.of_kinds(run, HEARD))
    return state_of(entries, owner is not None and owner.is_alive, answered=reader.letters(run))


async def at_work(store: Path, workers: Iterable[WorkerState]) -> dict[str, Standing]:
    """What those that are not over have in their checkouts by now, by their runs; without those that cannot be told."""
    found: dict[str, Standing] = {}
    for worker in workers:
        if worker.is_over or not worker.errand.has_checkout or not worker.base:
            continue
        try:
            of = Worktrees(repository=Repository.at(Path(worker.errand.root)), ledger=Ledger(store))
            found[worker.run] = await of.standing(await of.checkout(worker.errand.branch))
        except PodiumError:
            continue  # being made or put away just now: it has no lines to tell of
    return found


def fields(worker: WorkerState, standing: Standing | None = None) -> dict[str, Any]:
    """A worker for programs."""
    errand = worker.errand
    told: dict[str, Any] = {
        "id": worker.run,
        "name": worker.name,
        "branch": errand.branch,
        "state": worker.state,
        "agent": worker.agent,
        "role": errand.role,
        "task": worker.task,
        "repo": errand.root,
        "path": errand.path,
        "after": list(errand.after),
        "parent": errand.parent,
        "reader": errand.is_reader,
        "tool": worker.tool,
        "waiting_since": worker.waiting_since or None,
        "waiting_for": list(worker.waiting_for),
        "answer": worker.answer,
        "why": worker.why,
        "base": worker.base,
        "commit": worker.commit,
        "commits": list(worker.commits),
        "files": list(worker.files),
        "added": worker.added,
        "removed": worker.removed,
        "new_files": 0,
        "checks": [{"name": check.name, "passed": check.passed} for check in worker.checks],
        "usage": structs.asdict(worker.usage),
        "tokens": worker.usage.tokens,
        "usd": worker.usage.usd,
        "hired_at": worker.hired_at,
        "seconds": worker.seconds,
        "restarts": worker.restarts,
    }
    if standing is not None:
        told |= {"added": standing.added, "removed": standing.removed, "new_files": standing.untracked}
        told["files"] = [file.path for file in standing.files]
    return told


def line_count(worker: WorkerState, standing: Standing | None = None) -> str:
    """How many lines it added and removed: what its branch holds, or its checkout so far."""
    if standing is not None:
        new = f" ({standing.untracked} new)" if standing.untracked else ""
        return f"+{standing.added} -{standing.removed}{new}"
    return f"+{worker.added} -{worker.removed}" if worker.commit else "-"


def money(worker: WorkerState) -> str:
    """What its thinking cost, as far as the prices are known."""
    if worker.usage.usd:
        return f"${worker.usage.usd:.4f}"
    return "unpriced" if worker.usage.unpriced else "-"


def first_line(text: str) -> str:
    """What a task is about."""
    return next((line for line in text.splitlines() if line.strip()), "")
