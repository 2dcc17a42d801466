"""Push the branches of a merge train, and open a pull request for each of them.

Text from agents and people is in code blocks, so that a forge neither notifies people nor closes issues that the text
mentions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass

from anyio import to_thread

from ...runs.queries.repository_decisions import list_decisions
from ...values.actor import Actor, act
from ...values.errors import Mistake, OutsideFailed
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
from ...workspace.git.revision import SHORT, branch_tip, contains_commit
from ...workspace.merging.merge_train import Train
from ...workspace.travel.forge import Forge, OpenedRequest, PullRequest, choose_forge
from ...workspace.travel.remote_url import Remote, find_remote
from ...workspace.travel.repository_cache import RepositoryCache
from ..queries.worker_lookup import RepoContext

LONGEST_TITLE = 120
LONGEST_QUOTE = 8_000
MOST_DECISIONS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPlace:
    """Where pull requests are opened: the remote that branches are pushed to, and its forge."""

    remote: Remote
    forge: Forge


async def find_request_place(context: RepoContext) -> RequestPlace:
    """Return where to open pull requests for a repository. Raise Mistake if it has no remote or no forge."""
    remote = await find_remote(context.repository)
    if remote is None:
        raise Mistake(f"{context.root} has no remote for pull requests; add one with git remote add origin URL")
    settings = context.settings
    forge = choose_forge(
        remote.url, setting=settings.forge, outside=context.repository.main_folder, folder=settings.home
    )
    return RequestPlace(remote=remote, forge=forge)


@act("approve")
async def open_pull_requests(
    context: RepoContext, place: RequestPlace, train: Train, *, by: Actor
) -> AsyncIterator[OpenedRequest]:
    """Push each merged branch and open its pull request, in the order of the train, and yield each request.

    Raise OutsideFailed if a push or the forge's program fails. Requests that are already open stay open, and the next
    call finds them.
    """
    workers = {one.worker_task.branch: one for one in await to_thread.run_sync(context.load_workers)}
    decisions = await to_thread.run_sync(list_decisions, context.store, context.root)
    mirror = RepositoryCache(home=context.settings.home).open_mirror(place.remote.url)
    for merged in train.merged:
        worker = workers.get(merged.branch)
        tip = await branch_tip(context.repository, merged.branch)
        if not await contains_commit(context.repository, train.commit, tip):
            raise OutsideFailed(f"{merged.branch} has changed since it was checked; run the command again")
        made = [one for one in decisions if worker is not None and one.run in (worker.run, worker.worker_task.parent)]
        request = describe_pull_request(merged.branch, train, worker, made)
        await mirror.push_branch(context.repository.common_dir / "objects", tip, merged.branch)
        yield await place.forge.open_request(request)


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
