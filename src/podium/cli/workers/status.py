"""`podium workers status`: one worker in detail."""

from __future__ import annotations

import time
from collections.abc import Iterator

import anyio
import click

from ...values.event import SCHEMA
from ...views.worker_state import WorkerState
from ...workspace.worktrees.worktree_status import Standing
from ..terminal.measure import ago, counted, cut, span, used
from ..terminal.say import say
from ..terminal.text import as_json, visible
from .worker_lookup import There, as_object, at_work, fields, line_count, seen

LONGEST_TASK = 300


@click.command("status")
@click.argument("branch", required=False)
@as_object
@click.pass_obj
def command(there: There, branch: str | None, is_json: bool) -> None:
    """Tell of the worker of BRANCH in detail; without BRANCH, of each that is not over."""
    named = [there.worker(branch)] if branch else [one for one in there.workers() if not one.is_over]
    standing = anyio.run(at_work, there.store, named)
    if is_json:
        told = [fields(worker, standing.get(worker.run)) for worker in named]
        click.echo(as_json({"schema": SCHEMA, **(told[0] if branch else {"workers": told})}))
        return
    if not named:
        say("no worker is at work here; podium workers lists those that are over")
    for number, worker in enumerate(named):
        before = {one.run: one.name for one in seen(there.store, worker.errand.after)}
        lines = described(worker, standing.get(worker.run), before, now=time.time())
        click.echo(visible("\n".join(([""] if number else []) + list(lines))))


def described(worker: WorkerState, standing: Standing | None, before: dict[str, str], *, now: float) -> Iterator[str]:
    """A worker in lines. `before` has the names of those that it follows."""
    errand = worker.errand
    yield f"{worker.name}  {worker.state}  (run {worker.run})"
    yield f"task:     {cut(worker.task, LONGEST_TASK)}"
    role = f", role {errand.role}" if errand.role else ""
    yield f"agent:    {worker.agent}{role}{', reads only' if errand.is_reader else ''}"
    where = ", the repository itself" if errand.is_here else f", from {worker.base[:12]}" if worker.base else ""
    yield f"works in: {errand.path}{where}"
    if errand.after:
        yield f"after:    {', '.join(before.get(run, run) for run in errand.after)}"
    if worker.tool:
        yield f"tool:     {worker.tool}"
    if standing is not None or worker.commit:
        commits = f", {counted(len(worker.commits), 'commit')}" if worker.commit else ", not committed yet"
        files = len(worker.files if standing is None else standing.files)
        yield f"lines:    {line_count(worker, standing)} in {counted(files, 'file')}{commits}"
    for check in worker.checks:
        yield f"checks:   {check.name} {'passed' if check.passed else 'failed'}"
    yield f"used:     {used(worker.usage)}"
    again = f", started again {counted(worker.restarts, 'time')}" if worker.restarts else ""
    yield f"time:     hired {ago(now - worker.hired_at)}, {span(worker.seconds)} of work{again}"
    if worker.waiting_since:
        asked = ", ".join(f"podium approvals {id}" for id in worker.waiting_for)
        yield f"waits:    for your answer since {span(now - worker.waiting_since)}: {asked}"
    if worker.answer is not None:
        yield "answer:"
        yield worker.answer.rstrip("\n")
    else:
        yield f"no answer: {worker.why}"
