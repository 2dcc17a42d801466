"""What workers brought, each and together, as people and programs read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
from msgspec import structs

from ...store.sqlite.reader import Reader
from ...store.sqlite.worker_index import Crew
from ...values.errors import PodiumError
from ...values.event import KINDS, Entry, WorkerReturned, WorkerSent, decode
from ...views.worker_state import WorkerState
from ...views.workers_summary import Sending, Workforce, sent
from ...workspace.merging.overlap_forecast import Forecast
from ...workspace.worktrees.worktree_status import Standing
from ..terminal.measure import counted, cut, span, used
from ..terminal.quoted_markdown import bullets, inline, quotation
from . import forecast as forecasts
from .worker_lookup import at_work, line_count, seen
from .worker_lookup import fields as worker_fields

LONGEST_TASK = 200
MOST_FILES = 50
UNHIRED = "nobody has been hired for it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """Workers and how their branches would go together; `trouble` is why that could not be tried.

    `standings` is what those that are not over have in their checkouts, by their runs. `unsent` are those that
    were to be sent and never hired.
    """

    force: Workforce
    standings: dict[str, Standing] = field(default_factory=dict)
    unsent: tuple[Sending, ...] = ()
    forecast: Forecast | None = None
    trouble: str = ""

    @property
    def has_results(self) -> bool:
        """Whether anybody has begun, or could not."""
        return bool(self.unsent) or any(worker.state != "queued" for worker in self.force.workers)


def brought_by(store: Path, entries: Iterable[Entry]) -> Brought:
    """What the workers have brought that a run sent, and those that they sent in turn."""
    known = {hired.run for hired in Crew(store).all()}
    found = sent(entries)
    if not found:
        return Brought(force=Workforce.of(()))
    kinds = (KINDS[WorkerSent], KINDS[WorkerReturned])
    with Reader(store) as reader:
        for one in found:  # which grows meanwhile
            if one.run in known:
                found += sent(decode(row.line) for row in reader.of_kinds(one.run, kinds))
    unsent = tuple(one for one in found if one.run not in known)
    return brought(store, (one.run for one in found if one.run in known), unsent=unsent)


def brought(store: Path, runs: Iterable[str], *, unsent: tuple[Sending, ...] = ()) -> Brought:
    """What the workers of these runs have brought."""
    force = Workforce.of(seen(store, runs))
    branches = force.branches()
    told = Brought(force=force, standings=anyio.run(at_work, store, force.workers), unsent=unsent)
    if not branches:
        return told
    try:
        root = Path(next(worker.errand.root for worker in force.workers if worker.errand.branch in branches))
        return replace(told, forecast=anyio.run(forecasts.foreseen, root, branches))
    except PodiumError as error:
        return replace(told, trouble=str(error))


def fields(told: Brought) -> dict[str, Any]:
    """All of it for programs."""
    return {
        "workers": [worker_fields(worker, told.standings.get(worker.run)) for worker in told.force.workers],
        "unsent": [
            {"id": one.run, "branch": one.branch, "task": one.task, "why": _unhired(one)} for one in told.unsent
        ],
        "workforce": {
            "added": told.force.added,
            "removed": told.force.removed,
            "usage": structs.asdict(told.force.usage),
            "seconds": told.force.seconds,
            "shared": [{"path": one.path, "workers": list(one.workers)} for one in told.force.shared],
        },
        "forecast": None if told.forecast is None else forecasts.fields(told.forecast),
    }


# For people


def rendered(told: Brought) -> list[str]:
    """The workers in lines, then what they come to together."""
    lines = [""] if told.force.workers or told.unsent else []
    for worker in told.force.workers:
        lines += [f"--- worker {worker.name} (run {worker.run}): {worker.state}", f"  task: {_task(worker)}"]
        lines += [f"  {fact}" for fact in _facts(worker, told.standings.get(worker.run))]
        lines += [_said(worker).rstrip("\n")]
    for one in told.unsent:
        lines += [f"--- worker {one.branch or one.run}: not sent", f"  task: {cut(one.task, LONGEST_TASK)}"]
        lines += [f"no answer: {_unhired(one)}"]
    return lines + [f"  {line}" if number else f"{line}:" for number, line in enumerate(_together(told))]


def markdown(told: Brought) -> list[str]:
    """The same as blocks of Markdown."""
    blocks = ["## Workers"] if told.force.workers or told.unsent else []
    for worker in told.force.workers:
        blocks += [f"### {inline(worker.name)}: {worker.state}", f"Its task:\n{quotation(worker.task)}"]
        blocks += bullets(_facts(worker, told.standings.get(worker.run)))
        blocks += [quotation(worker.answer) if worker.answer is not None else inline(_said(worker))]
    for one in told.unsent:
        blocks += [f"### {inline(one.branch or one.run)}: not sent", f"Its task:\n{quotation(one.task)}"]
        blocks += [inline(f"no answer: {_unhired(one)}")]
    together = list(_together(told))
    return blocks + ([f"## {together[0]}", *bullets(together[1:])] if together else [])


def _task(worker: WorkerState) -> str:
    return cut(worker.task, LONGEST_TASK)


def _said(worker: WorkerState) -> str:
    return f"no answer: {worker.why}" if worker.answer is None else worker.answer


def _unhired(one: Sending) -> str:
    return one.why or UNHIRED


def _facts(worker: WorkerState, standing: Standing | None) -> Iterator[str]:
    """What a worker did, in a few lines; `standing` is what it has in its checkout so far."""
    yield f"used {used(worker.usage)} in {span(worker.seconds)}"
    if worker.commit:
        commits = counted(len(worker.commits), "commit")
        yield f"{line_count(worker)} in {counted(len(worker.files), 'file')}, {commits} on {worker.errand.branch}"
    elif standing is not None:
        yield f"so far {line_count(worker, standing)}, not committed"
    if worker.commits:
        yield f"commits: {', '.join(commit[:12] for commit in worker.commits)}"
    if worker.files:
        more = f" and {len(worker.files) - MOST_FILES} more" if len(worker.files) > MOST_FILES else ""
        yield f"files: {', '.join(worker.files[:MOST_FILES])}{more}"
    for check in worker.checks:
        yield f"checks {'passed' if check.passed else 'failed'}: {check.name}"


def _together(told: Brought) -> Iterator[str]:
    """What several workers come to, and what is to be expected of merging; nothing for no workers."""
    force = told.force
    if not force.workers:
        return
    yield "Together"
    workers = counted(len(force.workers), "worker")
    yield f"{workers}, +{force.added} -{force.removed}, {used(force.usage)} in {span(force.seconds)}"
    for one in force.shared:
        yield f"{one.path} was changed by {', '.join(one.workers)}"
    if told.forecast is not None:
        yield from forecasts.lines(told.forecast)
    if told.trouble:
        yield f"whether the branches would merge could not be tried: {told.trouble}"
