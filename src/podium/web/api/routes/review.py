"""Review a worker's changes: show the diff, send comments on lines of the diff, and merge part of it."""

from __future__ import annotations

from pathlib import Path

import anyio
from anyio import to_thread
from litestar import get, post
from litestar.params import JSONBody
from msgspec import Struct

from ....runs import find
from ....runs.queries.run_lookup import open_reader
from ....values.column import Document
from ....values.errors import Mistake
from ....views.diff_hunks import DiffFile, parse_diff
from ....views.review_message import LineComment, format_review
from ....views.worker_state import WorkerState
from ....workers.merging.merge import build_merge, plan_partial_merge
from ....workers.queries.worker_diff import read_worker_diff, require_own_branch
from ....workers.queries.worker_lookup import RepoContext, load_worker_state
from ....workers.review_round import ReviewRequest, SentReview, send_review
from ....workspace.merging.partial_commit import ChosenFile
from ..route_parameters import CurrentActor, IdempotencyKey, RunPrefix, Server, run_once
from ..scopes import ApiRequest, may, may_read
from ..server_context import ServerContext
from .workers import EmptyMerge, MergePreview, must_allow_checks, preview_plan


class NewReview(Struct, forbid_unknown_fields=True):
    """Comments on lines of a worker's diff, sent as one message.

    If `continues` is set and the worker has ended, the comments are the task of a new worker, which continues from the
    branch of the ended worker.
    """

    comments: tuple[LineComment, ...] = ()
    note: str = ""
    continues: bool = False


class NewPartialMerge(Struct, forbid_unknown_fields=True):
    """Files and hunks of a worker's diff to merge. `shown` is the digest of the diff that they were chosen from."""

    shown: str
    files: tuple[ChosenFile, ...]
    onto: str = ""
    checks: tuple[str, ...] = ()


class WorkerDiff(Document, frozen=True, kw_only=True):
    """A worker's changes since its base, as files, hunks and lines.

    If `is_committed` is true, `commit` and `tree` are those of its branch; otherwise they are a snapshot of its
    checkout. `digest` identifies exactly these changes. `omitted` is the number of lines that were left out.
    """

    run: str
    branch: str
    base: str
    commit: str
    tree: str
    is_committed: bool
    digest: str
    files: list[DiffFile]
    omitted: int


@get("/api/workers/{run:str}/diff", guards=[may_read])
async def read_diff(run: RunPrefix, server: Server) -> WorkerDiff:
    """Return a worker's changes since its base, as files, hunks and lines."""
    worker = await _load_worker(server, run)
    require_own_branch(worker)
    is_here = await anyio.Path(worker.worker_task.path).is_dir()
    context = _make_context(server, worker)
    diff = await read_worker_diff(context, worker, in_checkout=not worker.is_over and is_here)
    parsed = await to_thread.run_sync(parse_diff, diff.text)
    await server.diff_syntax.add_to(parsed.files)
    branch = worker.worker_task.branch
    return WorkerDiff.of(diff, run=worker.run, branch=branch, files=parsed.files, omitted=parsed.omitted)


@post("/api/workers/{run:str}/review", guards=[may(send_review)], status_code=200)
async def review_changes(
    run: RunPrefix,
    data: JSONBody[NewReview],
    actor: CurrentActor,
    server: Server,
    idempotency_key: IdempotencyKey = None,
) -> SentReview:
    """Send line comments on a worker's diff, as one message, to the worker or to a new one that continues its work."""
    worker = await _load_worker(server, run)
    text = format_review(worker.worker_task.branch, data.comments, data.note)

    async def send(id: str) -> SentReview:
        review = ReviewRequest(text=text, continues=data.continues, ref=idempotency_key or "")
        settings = _make_context(server, worker).settings
        return await send_review(server.runs, settings, worker, review, by=actor, run=id)

    return await run_once(server.store, idempotency_key, data, send)


@post("/api/workers/{run:str}/merges", guards=[may(build_merge)])
async def preview_partial_merge(
    run: RunPrefix,
    data: JSONBody[NewPartialMerge],
    request: ApiRequest,
    actor: CurrentActor,
    server: Server,
    idempotency_key: IdempotencyKey = None,
) -> MergePreview | EmptyMerge:
    """Merge chosen files and hunks of a worker's diff into a new branch, and run the checks.

    The target branch is not changed. Nothing is merged if the worker's changes differ from the diff that was shown.
    `checks` adds commands to the checks in the settings. Commands that are not there need the scope `approve`.
    """
    worker = await _load_worker(server, run)
    context = _make_context(server, worker)
    must_allow_checks(request, context, data.checks)

    async def build(_: str) -> MergePreview | EmptyMerge:
        notices: list[str] = []
        plan = await plan_partial_merge(
            context, worker, data.files, onto=data.onto, shown=data.shown, notice=notices.append
        )
        return await preview_plan(plan, data.checks, notices, by=actor)

    return await run_once(server.store, idempotency_key, data, build)


async def _load_worker(server: ServerContext, run: str) -> WorkerState:
    def load() -> WorkerState:
        with open_reader(server.store) as reader:
            id = find.resolve(reader, run, repo=server.repo).run
            if not reader.read_summary(id).is_worker:
                raise Mistake(f"run {id} does not belong to a worker; run podium workers to list the workers")
            return load_worker_state(reader, id)

    return await to_thread.run_sync(load)


def _make_context(server: ServerContext, worker: WorkerState) -> RepoContext:
    return RepoContext(Path(worker.worker_task.root), server.settings)


ROUTES = (read_diff, review_changes, preview_partial_merge)
