"""Send a person's review to a worker or, if the worker has ended, start a worker that continues on a new branch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from anyio import to_thread
from msgspec import Struct

from ..core.placement import WorkerOptions
from ..files.settings import Settings
from ..runs.run_steering import NewMessage, send_message
from ..runs.runs import Runs
from ..store.reader import RunSummary, StoreReader
from ..store.worker_index import WorkerIndex
from ..values.actor import Actor, act
from ..values.errors import Mistake, RunOver
from ..values.plain_text import escape_unprintable, fence_output
from ..values.store_address import StoreAddress
from ..views.worker_state import WorkerState
from ..workspace.git.repository import Repository
from ..workspace.git.revision import branch_tip
from .checkout_placement import choose_branch_name
from .delegation import NewWorker, delegate
from .queries.worker_diff import require_own_branch
from .queries.worker_lookup import load_worker_states

SUFFIX = "-review"


class SentReview(Struct, frozen=True, kw_only=True):
    """The run and branch of the worker that gets the review, and a sentence about when it is delivered."""

    run: str
    branch: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRequest:
    """A review of a worker's changes. If the worker has ended and `continues` is set, a new worker gets the review.

    A review with a known `ref` is not sent to a worker again.
    """

    text: str
    continues: bool = False
    ref: str = ""


@act("act")
async def send_review(
    runs: Runs, settings: Settings, worker: WorkerState, review: ReviewRequest, *, by: Actor, run: str = ""
) -> SentReview:
    """Send a review to a worker or, if it has ended, start a worker with the same agent that continues from its branch.

    The new worker works on a new branch, so the reviewed branch does not change. `run` is the id for the new run; if a
    run with this id already exists, no other run is started. Raise RunOver if the worker has ended and the review does
    not continue its work, or Mistake if no worker can be started.
    """
    require_own_branch(worker)
    if worker.is_over:
        return await _continue_work(runs, settings, worker, review, by=by, run=run)
    summary = await to_thread.run_sync(_read_summary, settings.store, worker.run)
    message = NewMessage(text=review.text, ref=review.ref)
    sent = await to_thread.run_sync(partial(send_message, settings.store, summary, message, by=by))
    return SentReview(run=worker.run, branch=worker.worker_task.branch, text=sent.text)


async def _continue_work(
    runs: Runs, settings: Settings, worker: WorkerState, review: ReviewRequest, *, by: Actor, run: str
) -> SentReview:
    if not review.continues:
        raise RunOver(
            f"{worker.name} has ended ({worker.state}) and cannot receive messages; "
            "start a new worker that continues from its branch, with the review as its task"
        )
    if len(worker.works) > 1:
        raise Mistake(
            f"{worker.name} worked in several repositories, so no new worker can continue from its branch; "
            "delegate a new task with --also"
        )
    if run and await runs.has_run(run):
        [known] = await to_thread.run_sync(load_worker_states, settings.store, [run])
        return _describe(run, known.worker_task.branch)
    root, branch = Path(worker.worker_task.root), worker.worker_task.branch
    repository = Repository.at(root)
    name = await choose_branch_name(repository, WorkerIndex(settings.store), branch, SUFFIX)
    new = NewWorker(
        at=root,
        branch=name,
        task=_format_review_task(worker, review.text),
        agent=worker.agent,
        options=WorkerOptions(base=await branch_tip(repository, branch), role=worker.worker_task.role or None),
    )
    return _describe(await delegate(runs, settings, new, by=by, run=run), name)


def _read_summary(store: StoreAddress, run: str) -> RunSummary:
    with StoreReader(store) as reader:
        return reader.read_summary(run)


def _format_review_task(worker: WorkerState, review: str) -> str:
    """Return the task for a worker that continues another worker's work after a review."""
    branch = escape_unprintable(worker.worker_task.branch)
    return (
        f"Continue the work on {branch} after a review\n\n"
        f"Your checkout starts with the changes from {branch}, whose worker has ended. Its task was:\n"
        f"{fence_output(worker.task)}\n\n{review}"
    )


def _describe(run: str, branch: str) -> SentReview:
    text = f"a new worker on {branch} continues the work, with the review as its task"
    return SentReview(run=run, branch=branch, text=text)
