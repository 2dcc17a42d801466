"""What workers brought, each and together, as people and programs read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from msgspec import structs

from ..errors import PodiumError
from ..store.workers import Crew
from ..worker_state import WorkerState
from ..workforce import Workforce
from ..workspace.forecast import Forecast
from . import workers_forecast as forecasts
from .markdown import bullets, inline, quotation
from .measure import counted, cut, span, used
from .workers_look import fields as worker_fields
from .workers_look import line_count, seen

LONGEST_TASK = 200
MOST_FILES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """Workers and how their branches would go together; `trouble` is why that could not be tried."""

    force: Workforce
    forecast: Forecast | None = None
    trouble: str = ""


def brought(store: Path, runs: Iterable[str]) -> Brought:
    """What the workers of these runs have brought; one that was not hired yet is left out."""
    known = {hired.run for hired in Crew(store).all()}
    force = Workforce.of(seen(store, (run for run in runs if run in known)))
    branches = force.branches()
    if not branches:
        return Brought(force=force)
    try:
        root = Path(next(worker.errand.root for worker in force.workers if worker.errand.branch in branches))
        return Brought(force=force, forecast=anyio.run(forecasts.foreseen, root, branches))
    except PodiumError as error:
        return Brought(force=force, trouble=str(error))


def fields(told: Brought) -> dict[str, Any]:
    """All of it for programs."""
    return {
        "workers": [worker_fields(worker) for worker in told.force.workers],
        "workforce": {
            "added": told.force.added,
            "removed": told.force.removed,
            "usage": structs.asdict(told.force.usage),
            "shared": [{"path": one.path, "workers": list(one.workers)} for one in told.force.shared],
        },
        "forecast": None if told.forecast is None else forecasts.fields(told.forecast),
    }


# For people


def rendered(told: Brought) -> list[str]:
    """The workers in lines, then what they come to together."""
    lines = [""] if told.force.workers else []
    for worker in told.force.workers:
        lines += [f"--- worker {worker.name} (run {worker.run}): {worker.state}", f"  task: {_task(worker)}"]
        lines += [f"  {fact}" for fact in _facts(worker)]
        lines += [_said(worker).rstrip("\n")]
    return lines + [f"  {line}" if number else f"{line}:" for number, line in enumerate(_together(told))]


def markdown(told: Brought) -> list[str]:
    """The same as blocks of Markdown."""
    blocks = ["## Workers"] if told.force.workers else []
    for worker in told.force.workers:
        blocks += [f"### {inline(worker.name)}: {worker.state}", f"Its task:\n{quotation(worker.task)}"]
        blocks += bullets(_facts(worker))
        blocks += [quotation(worker.answer) if worker.answer is not None else inline(_said(worker))]
    together = list(_together(told))
    return blocks + ([f"## {together[0]}", *bullets(together[1:])] if together else [])


def _task(worker: WorkerState) -> str:
    return cut(worker.task, LONGEST_TASK)


def _said(worker: WorkerState) -> str:
    return f"no answer: {worker.why}" if worker.answer is None else worker.answer


def _facts(worker: WorkerState) -> Iterator[str]:
    """What a worker did, in a few lines."""
    yield f"used {used(worker.usage)} in {span(worker.seconds)}"
    if worker.commit:
        commits = counted(len(worker.commits), "commit")
        yield f"{line_count(worker)} in {counted(len(worker.files), 'file')}, {commits} on {worker.errand.branch}"
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
    yield f"{workers}, +{force.added} -{force.removed}, {used(force.usage)}"
    for one in force.shared:
        yield f"{one.path} was changed by {', '.join(one.workers)}"
    if told.forecast is not None:
        yield from forecasts.lines(told.forecast)
    if told.trouble:
        yield f"whether the branches would merge could not be tried: {told.trouble}"
