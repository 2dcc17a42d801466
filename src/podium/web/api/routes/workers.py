"""Routes for workers: list workers, delegate tasks to them, and merge their branches."""

from __future__ import annotations

from typing import Any

import msgspec
from anyio import to_thread
from litestar import get, post
from litestar.params import JSONBody
from msgspec import Struct

from ....core.placement import WorkerOptions
from ....roster.discovery import load_roster
from ....runs.branch_forecast import forecast_branches, forecast_fields, read_current_branch
from ....runs.context_window import add_context_windows
from ....runs.merge_candidates import MergeCandidate, find_merge_candidates, require_single_repository
from ....runs.worker_lookup import RepoContext, load_worker_states, read_worktree_statuses, worker_fields
from ....runs.worktree_listing import worktree_fields
from ....setup.settings import Settings
from ....store.worker_index import WorkerIndex
from ....tools.shell import SHELL
from ....values.agent import Budget
from ....values.event import SCHEMA
from ....values.worker_task import DEFAULT_WORKER_AGENT
from ....views.worker_state import WorkerState
from ....workers.delegate import delegate_to_worker, start_commander
from ....workers.merge_run import CheckRunner, merge_fields, run_merge_train
from ....workers.provider_keys import announce_keys
from ....workspace.git.repository import Repository
from ....workspace.merging.fast_forward import fast_forward
from ....workspace.merging.integration_branch import remove_superseded_branches
from ....workspace.worktrees.cleanup import list_worktrees
from ..command_once import run_once
from ..route_parameters import IdempotencyKey, RepoFolder, Server
from ..scopes import may_act, may_approve, may_read

MOST_OVER = 50


class NewWorker(Struct, forbid_unknown_fields=True):
    """A task for a worker on its own branch."""

    branch: str
    task: str
    agent: str = DEFAULT_WORKER_AGENT
    repo: str = ""
    model: str | None = None
    after: tuple[str, ...] = ()
    budget: Budget | None = None
    read_only: bool = False
    also: tuple[str, ...] = ()
    """Folders in additional repositories. The worker also gets a checkout of each of these repositories."""


class NewMerge(Struct, forbid_unknown_fields=True):
    """Branches to merge. If `branches` is empty, every unmerged branch whose worker succeeded is merged."""

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


@get("/api/workers", guards=[may_read])
async def list_workers(server: Server, repo: RepoFolder = "") -> dict[str, Any]:
    """List the workers in all repositories, or in one, with their state, changed lines and cost.

    Of the workers that have ended, only the last `MOST_OVER` are listed.
    """
    root = str(Repository.at(server.find_place(repo)).main_folder) if repo else None

    def load() -> list[WorkerState]:
        if not server.store.exists():
            return []
        rows = WorkerIndex(server.store).list_listed(root)
        workers = load_worker_states(server.store, (row.run for row in rows))
        over = [worker.run for worker in workers if worker.is_over]
        old = set(over[:-MOST_OVER])
        return [worker for worker in workers if worker.run not in old]

    workers = await to_thread.run_sync(load)
    statuses = await read_worktree_statuses(server.store, workers)
    fields = [worker_fields(worker, statuses.get(worker.run)) for worker in workers]
    await to_thread.run_sync(add_context_windows, fields, server.settings)
    return {"schema": SCHEMA, "workers": msgspec.to_builtins(fields)}


@get("/api/forecast", guards=[may_read])
async def read_forecast(server: Server, repo: RepoFolder = "") -> dict[str, Any]:
    """Return how the branches of workers would merge into the checked-out branch, and which of them overlap."""
    context = RepoContext(server.find_place(repo), server.settings)
    workers = await to_thread.run_sync(context.load_workers)
    branches = {one.worker_task.branch: one.base for one in workers if one.base and one.worker_task.has_checkout}
    found = await forecast_branches(context.repository.main_folder, branches) if branches else None
    return {"schema": SCHEMA, "forecast": None if found is None else msgspec.to_builtins(forecast_fields(found))}


@get("/api/worktrees", guards=[may_read])
async def read_worktrees(server: Server, repo: RepoFolder = "") -> dict[str, Any]:
    """List the worktrees of a repository."""
    context = RepoContext(server.find_place(repo), server.settings)
    found = [worktree_fields(one) for one in await list_worktrees(context.worktrees)]
    return {"schema": SCHEMA, "worktrees": msgspec.to_builtins(found)}


@post("/api/workers", guards=[may_act])
async def delegate(data: JSONBody[NewWorker], server: Server, idempotency_key: IdempotencyKey = None) -> dict[str, Any]:
    """Start a worker that does a task on its own branch, in its own process and checkout."""
    place = server.find_place(data.repo)
    settings = Settings.load(repo=place, store=server.store, home=server.settings.home, model=data.model)
    agent, *others = load_roster(place, settings.home).resolve_team(data.agent)
    options = WorkerOptions(
        model=data.model,
        after=data.after,
        budget=data.budget,
        is_reader=data.read_only,
        also=tuple(str(server.find_place(folder)) for folder in data.also),
    )

    async def start(id: str) -> dict[str, Any]:
        with announce_keys(settings.store, id) as delivery:
            run = await delegate_to_worker(
                server.launcher,
                agent,
                data.task,
                at=place,
                branch=data.branch,
                options=options,
                run=delivery.run,
                settings=settings,
                agents=others,
            )
            start_commander(settings, delivery=delivery)
        return {"id": run, "branch": data.branch}

    return await run_once(server.store, idempotency_key, data, start)


@post("/api/merges", guards=[may_act])
async def preview_merge(
    data: JSONBody[NewMerge], server: Server, idempotency_key: IdempotencyKey = None
) -> dict[str, Any]:
    """Merge branches one after another into a new branch, and run the checks at each step. The target does not move."""
    context = RepoContext(server.find_place(data.repo), server.settings)
    target = data.onto or await read_current_branch(context.repository)
    notices: list[str] = []

    async def build(_: str) -> dict[str, Any]:
        candidates = await find_merge_candidates(context, data.branches, target, notice=notices.append)
        require_single_repository(candidates, "the dashboard")
        if not candidates:
            return {"schema": SCHEMA, "target": target, "coupled": [], "left_out": [], "notices": notices}
        return await build_merge(context, candidates, target, data.checks, notices=notices)

    return await run_once(server.store, idempotency_key, data, build)


async def build_merge(
    context: RepoContext, candidates: list[MergeCandidate], target: str, checks: tuple[str, ...], *, notices: list[str]
) -> dict[str, Any]:
    """Merge the candidates into a new branch, and return the result as JSON fields.

    `checks` lists commands to run in addition to the checks in the settings. Notices are added to `notices`, and are
    also in the fields.
    """
    commands = {**context.settings.checks, **{text: (SHELL, "-c", text) for text in checks}}
    check = CheckRunner(context.settings, commands, notices.append)
    outcome = await run_merge_train(context.repository, candidates, target, check)
    fields: dict[str, Any] = msgspec.to_builtins(merge_fields(outcome))
    return {**fields, "notices": notices}


@post("/api/merges/apply", guards=[may_approve], status_code=200)
async def apply_merge(data: JSONBody[ReviewedMerge], server: Server) -> dict[str, Any]:
    """Move the target to the result that was reviewed. Nothing moves if the target or the tree has changed."""
    repository = RepoContext(server.find_place(data.repo), server.settings).repository
    await fast_forward(repository, data.target, commit=data.commit, expected_tree=data.tree, expected_old=data.base)
    await remove_superseded_branches(repository, data.commit, except_ref=None)
    return {"target": data.target, "commit": data.commit}


ROUTES = (list_workers, read_forecast, read_worktrees, delegate, preview_merge, apply_merge)
