"""Describe a worker's branch in a pull request: its task, its run, the checks that passed and the decisions made.

Text from agents and people is in code blocks, so that a forge neither notifies people nor closes issues that the text
mentions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...values.plain_text import (
    cut_middle,
    escape_for_terminal,
    escape_unprintable,
    fence_output,
    format_count,
    join_words,
    truncate_text,
)
from ...views.decision_record import DecisionRecord
from ...views.worker_state import WorkerState
from ...workspace.git.revision import SHORT
from ...workspace.merging.merge_train import Train
from ...workspace.travel.forge import PullRequest

LONGEST_TITLE = 120
LONGEST_QUOTE = 8_000
MOST_DECISIONS = 20


def describe_pull_request(
    branch: str, train: Train, worker: WorkerState | None, decisions: Sequence[DecisionRecord]
) -> PullRequest:
    """Return the pull request for a branch in a merge train. `worker` is the branch's worker, if it has one."""
    task = "" if worker is None else next(iter(worker.task.strip().splitlines()), "")
    title = escape_unprintable(f"{branch}: {task}" if task else branch)
    blocks = [*_describe_run(worker), *_describe_checks(branch, train), *_describe_decisions(decisions)]
    return PullRequest(
        branch=branch,
        target=train.target,
        title=truncate_text(title, LONGEST_TITLE),
        description="\n\n".join(blocks) + "\n",
    )


def _describe_run(worker: WorkerState | None) -> Iterator[str]:
    if worker is None:
        return
    yield "## Task"
    yield _quote(worker.task)
    if worker.answer:
        yield "## Answer"
        yield _quote(worker.answer)
    yield "## Run"
    yield _quote("\n".join(_iter_run_facts(worker)))


def _iter_run_facts(worker: WorkerState) -> Iterator[str]:
    yield f"run {worker.run}, {worker.state}: agent {worker.agent}" + (
        f", model {worker.model}" if worker.model else ""
    )
    yield (
        f"{format_count(len(worker.commits), 'commit')}, {format_count(len(worker.files), 'file')}, "
        f"+{worker.added} -{worker.removed}"
    )
    if worker.usage.usd:
        yield f"cost: ${worker.usage.usd:.2f}"
    for check in worker.checks:
        yield f"check by the worker: {check.name}: {'passed' if check.passed else 'failed'}"


def _describe_checks(branch: str, train: Train) -> Iterator[str]:
    yield "## Checks"
    order = [one.branch for one in train.merged]
    before = order[: order.index(branch)]
    after = f", after {join_words(before)}" if before else ""
    others = order[order.index(branch) + 1 :]
    whole = f" The result also contains {join_words(others)}." if others else ""
    checks = ", ".join(train.checks)
    passed = f"checks that passed on the result: {checks}" if train.checks else "no check was run on the result"
    yield _quote(
        f"{branch} merged onto {train.target} at {train.base[:SHORT]}{after}, without conflicts.{whole}\n{passed}"
    )


def _describe_decisions(decisions: Iterable[DecisionRecord]) -> Iterator[str]:
    lines = [
        f"{one.id}: {' '.join(one.state.proposal.topic.split())}: {' '.join(one.state.committed.option.split())}"
        for one in decisions
        if one.state.committed is not None
    ]
    if lines:
        yield "## Decisions"
        more = len(lines) - MOST_DECISIONS
        yield _quote("\n".join([*lines[:MOST_DECISIONS], *([f"and {more} more"] if more > 0 else [])]))


def _quote(text: str) -> str:
    return fence_output(cut_middle(escape_for_terminal(text.strip()), LONGEST_QUOTE))
