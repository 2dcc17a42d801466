"""Routes for workers: list workers, delegate tasks to them, and merge their branches."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from anyio import to_thread
from litestar import get, post
from litestar.params import JSONBody
from msgspec import Meta, Struct, structs

from ....core.placement import WorkerOptions
from ....files.settings import Settings
from ....runs.queries.context_window import add_context_windows
from ....store.worker_index import WorkerIndex
from ....values.actor import Actor
from ....values.column import Document, DocumentPart, PageColumn, RowColumns, encode_rows, list_page_columns
from ....values.errors import Mistake
from ....values.plain_text import truncate_text
from ....values.worker_task import DEFAULT_WORKER_AGENT
from ....views.worker_state import WorkerState
from ....workers.delegation import NewWorker, delegate
from ....workers.merging.branch_forecast import (
    ForecastReport,
    build_forecast_report,
    forecast_branches,
    read_current_branch,
)
from ....workers.merging.merge import (
    MergePlan,
    MergeRequest,
    apply_merge,
    build_merge,
    find_reviewed_result,
    finish_interrupted_moves,
    format_kept_ref,
    plan_merge,
)
from ....workers.merging.merge_candidates import (
    MergeCandidate,
    find_independent_branches,
    list_merge_candidates,
)
from ....workers.merging.merge_run import MergeReport
from ....workers.queries.worker_listing import WORKER_COLUMNS, WorkerObject, make_worker_rows
from ....workers.queries.worker_lookup import RepoContext, load_readable_states, read_worktree_statuses
from ....workers.queries.worktree_listing import WORKTREE_COLUMNS, ListedWorktree
from ....workers.worker_options import MOST_TIMES, Choose
from ....workspace.git.repository import Repository
from ....workspace.merging.merge_train import LeftOutBranch, MergedBranch
from ....workspace.worktrees.cleanup import list_worktrees
from ..route_parameters import CurrentActor, IdempotencyKey, RepoFolder, Server, run_once
from ..scopes import ApiRequest, get_token, may, may_read, require_scope
from ..server_context import ServerContext

MOST_OVER = 50


class DelegatedTask(WorkerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task for a worker on its own branch, with the options of `podium delegate`.

    Rules in `auto_approve` need the scope `approve`.
    """

    branch: str
    task: str
    agent: str = DEFAULT_WORKER_AGENT
    repo: str = ""
    times: Annotated[int, Meta(ge=2, le=MOST_TIMES)] | None = None
    choose: Choose | None = None


class NewMerge(Struct, forbid_unknown_fields=True):
    """Branches to merge. If `branches` is empty, all results of teams and all workers that succeeded are merged."""

    branches: tuple[str, ...] = ()
    onto: str = ""
    checks: tuple[str, ...] = ()
    repo: str = ""


class ReviewedMerge(Struct, forbid_unknown_fields=True):
    """The result of a merge as it was reviewed. The target moves to exactly this tree, or not at all."""

    target: str
    base: str
    commit: str
    tree: str
    repo: str = ""


class WorkerList(Document, frozen=True, kw_only=True):
    """Workers, with the columns to draw."""

    columns: list[PageColumn]
    workers: list[WorkerObject]


class Candidate(DocumentPart, frozen=True, kw_only=True):
    """A branch that may be merged, and the run whose work is on it."""

    branch: str
    run: str
    notice: str


class RepositoryForecast(Document, frozen=True, kw_only=True):
    """How the branches of a repository would merge into the checked-out branch.

    `skipped` contains the reason for each branch that is not a candidate.
    """

    forecast: ForecastReport | None
    candidates: list[Candidate]
    skipped: list[str]


class WorktreeList(Document, frozen=True, kw_only=True):
    """The worktrees of a repository."""

    worktrees: list[Annotated[dict[str, object], RowColumns(WORKTREE_COLUMNS)]]


class StartedWorker(Struct, frozen=True, kw_only=True):
    """A worker that was started, with its run and its branch."""

    id: str
    branch: str


class MergePreview(MergeReport, frozen=True, kw_only=True):
    """The result of a merge that can be applied, with the notices about it."""

    notices: list[str]


class EmptyMerge(Document, frozen=True, kw_only=True):
    """A merge without any branches that can be merged, with the notices that say why."""

    target: str
    notices: list[str]
    coupled: tuple[MergedBranch, ...] = ()
    left_out: tuple[LeftOutBranch, ...] = ()


class MovedTarget(Struct, frozen=True, kw_only=True):
    """A branch that was moved to the result of a merge."""

    target: str
    commit: str
    notices: list[str]


@get("/api/workers", guards=[may_read])
async def list_workers(request: ApiRequest, server: Server, repo: RepoFolder = "") -> WorkerList:
    """List the workers in all repositories, or in one, with their state, changed lines and cost.

    Of the workers that have ended, only the last `MOST_OVER` are listed.
    """
    root = str(Repository.at(await _find_place(request, server, repo)).main_folder) if repo else None

    def load() -> list[WorkerState]:
        if not server.store.exists():
            return []
        rows = WorkerIndex(server.store).list_listed(root)
        workers = load_readable_states(server.store, (row.run for row in rows))
        over = [worker.run for worker in workers if worker.is_over]
        old = set(over[:-MOST_OVER])
        return [worker for worker in workers if worker.run not in old]

    workers = await to_thread.run_sync(load)
    statuses = await read_worktree_statuses(server.store, workers)
    rows = make_worker_rows(workers, statuses, now=time.time())
    items = encode_rows(rows, WORKER_COLUMNS)
    contexts = [row.worker.context for row in rows]
    for item, context in zip(
        items, await to_thread.run_sync(add_context_windows, contexts, server.settings), strict=True
    ):
        item["context"] = context
    return WorkerList(columns=list_page_columns(WORKER_COLUMNS), workers=items)


@get("/api/forecast", guards=[may_read])
async def read_forecast(request: ApiRequest, server: Server, repo: RepoFolder = "") -> RepositoryForecast:
    """Return the branches that may be merged into the checked-out branch, how they would merge, and which overlap.

    The forecast includes the branches of workers that are still working, but not those that are only a part of a team's
    work.
    """
    context = RepoContext(await _find_place(request, server, repo), server.settings)
    skipped: list[str] = []
    candidates = await _list_candidates(context, skipped)
    branches = await to_thread.run_sync(find_independent_branches, context)
    branches |= {one.branch: one.base for one in candidates if one.branch not in branches}
    found = await forecast_branches(context.repository.main_folder, branches) if branches else None
    return RepositoryForecast(
        forecast=None if found is None else build_forecast_report(found),
        candidates=[Candidate.of(one) for one in candidates],
        skipped=skipped,
    )


async def _list_candidates(context: RepoContext, skipped: list[str]) -> list[MergeCandidate]:
    try:
        target = await read_current_branch(context.repository)
        return await list_merge_candidates(context, target, notice=skipped.append)
    except Mistake:
        return []  # no branch is checked out, or it has no commit


@get("/api/worktrees", guards=[may_read])
async def read_worktrees(request: ApiRequest, server: Server, repo: RepoFolder = "") -> WorktreeList:
    """List the worktrees of a repository."""
    context = RepoContext(await _find_place(request, server, repo), server.settings)
    now = time.time()
    rows = [ListedWorktree(summary=one, now=now) for one in await list_worktrees(context.worktrees)]
    return WorktreeList(worktrees=encode_rows(rows, WORKTREE_COLUMNS))


@post("/api/workers", guards=[may(delegate)])
async def delegate_task(
    data: JSONBody[DelegatedTask],
    request: ApiRequest,
    actor: CurrentActor,
    server: Server,
    idempotency_key: IdempotencyKey = None,
) -> StartedWorker:
    """Start a worker that does a task on its own branch, in its own process and checkout."""
    place = await _find_place(request, server, data.repo)
    settings = Settings.load(repo=place, store=server.store, home=server.settings.home, model=data.model)
    if data.approved:
        require_scope(request, "approve", to=f"the rule {truncate_text(data.approved[0])!r} in auto_approve")
    also = tuple([str(await _find_place(request, server, folder)) for folder in data.also])
    worker = NewWorker(
        at=place,
        branch=data.branch,
        task=data.task,
        agent=data.agent,
        options=structs.replace(data, also=also),
        times=data.times,
        choose=data.choose,
    )

    async def start(id: str) -> StartedWorker:
        run = await delegate(server.runs, settings, worker, by=actor, run=id)
        return StartedWorker(id=run, branch=data.branch)

    return await run_once(server.store, idempotency_key, data, start)


@post("/api/merges", guards=[may(build_merge)])
async def preview_merge(
    data: JSONBody[NewMerge],
    request: ApiRequest,
    actor: CurrentActor,
    server: Server,
    idempotency_key: IdempotencyKey = None,
) -> MergePreview | EmptyMerge:
    """Merge branches one after another into a new branch, and run the checks at each step. The target does not move.

    `checks` adds commands to the checks in the settings. Commands that are not there need the scope `approve`.
    """
    context = RepoContext(await _find_place(request, server, data.repo), server.settings)
    must_allow_checks(request, context, data.checks)
    merge = MergeRequest(branches=data.branches, onto=data.onto, single_for="the dashboard")
    notices: list[str] = []

    async def build(_: str) -> MergePreview | EmptyMerge:
        plan = await plan_merge(context, merge, notice=notices.append)
        return await preview_plan(plan, data.checks, notices, by=actor)

    return await run_once(server.store, idempotency_key, data, build)


async def preview_plan(
    plan: MergePlan, checks: tuple[str, ...], notices: list[str], *, by: Actor
) -> MergePreview | EmptyMerge:
    """Build a merge in one repository, add to `notices`, and return them with the result."""
    if not plan.merges:
        return EmptyMerge(target=plan.target, notices=notices)
    checked = await build_merge(plan, checks, by=by, notice=notices.append)
    [(_, outcome)] = checked.parts
    return MergePreview.of(outcome, notices=notices)


@post("/api/merges/apply", guards=[may(apply_merge)], status_code=200)
async def apply_reviewed_merge(
    data: JSONBody[ReviewedMerge], request: ApiRequest, actor: CurrentActor, server: Server
) -> MovedTarget:
    """Move the target to the result that was reviewed. Nothing moves if the target or the tree has changed.

    As after `podium merge`, the branch of the merge and the remote refs of merged workers are removed. `notices` says
    which refs were kept, and what became of an earlier merge that was interrupted.
    """
    context = RepoContext(await _find_place(request, server, data.repo), server.settings)
    notices: list[str] = []
    await finish_interrupted_moves(context.settings, notice=notices.append)
    result = await find_reviewed_result(context, target=data.target, base=data.base, commit=data.commit, tree=data.tree)
    applied = await apply_merge([result], by=actor)
    notices += [format_kept_ref(one) for one in applied.kept_refs]
    return MovedTarget(target=data.target, commit=data.commit, notices=notices)


def must_allow_checks(request: ApiRequest, context: RepoContext, given: tuple[str, ...]) -> None:
    """Require the scope `approve` if a client added commands to the checks in the settings."""
    commands = [text for text in given if text not in context.settings.checks]
    if commands:
        require_scope(request, "approve", to=f"the check {truncate_text(commands[0])!r}, which is not in the settings,")


async def _find_place(request: ApiRequest, server: ServerContext, repo: str) -> Path:
    return await to_thread.run_sync(lambda: server.find_place(repo, by=get_token(request)))


ROUTES = (list_workers, read_forecast, read_worktrees, delegate_task, preview_merge, apply_reviewed_merge)
