"""Send a person's review to a worker or, if the worker has ended, start a worker that continues on a new branch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from ..core.placement import WorkerOptions
from ..roster.discovery import load_roster
from ..runs.run_launcher import RunLauncher
from ..runs.run_steering import NewMessage, send_message
from ..runs.worker_diff import require_own_branch
from ..runs.worker_lookup import load_worker_states
from ..setup.settings import Settings
from ..store.reader import StoreReader
from ..store.worker_index import WorkerIndex
from ..values.actor import Actor, act
from ..values.errors import Mistake, RunOver
from ..values.plain_text import escape_unprintable, fence_output
from ..values.store_address import StoreAddress
from ..views.worker_state import WorkerState
from ..workspace.git.repository import Repository
from ..workspace.git.revision import branch_tip
from .branch_name import choose_branch_name
from .delegation import delegate_to_worker, start_commander
from .provider_keys import announce_keys

SUFFIX = "-review"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentReview:
    """The run and branch of the worker that gets the review, and a sentence about when it is delivered."""

    run: str
    branch: str
    text: str


@act("act")
def send_review(store: StoreAddress, worker: WorkerState, review: str, *, by: Actor, ref: str = "") -> SentReview:
    """Send a review to a worker that has not ended. A review with a known `ref` is not sent again.

    Raise RunOver if the worker has ended.
    """
    branch = worker.worker_task.branch
    if worker.is_over:
        raise RunOver(
            f"{worker.name} has ended ({worker.state}) and cannot receive messages; "
            "start a new worker that continues from its branch, with the review as its task"
        )
    with StoreReader(store) as reader:
        summary = reader.read_summary(worker.run)
    sent = send_message(store, summary, NewMessage(text=review, ref=ref), by=by)
    return SentReview(run=worker.run, branch=branch, text=sent.text)


async def delegate_review(
    launcher: RunLauncher, settings: Settings, worker: WorkerState, review: str, *, by: Actor, run: str = ""
) -> SentReview:
    """Start a worker with the same agent to continue from the branch of a worker that has ended.

    The new worker works on a new branch, so the reviewed branch does not change. `by` is who sends the review. `run` is
    the id for the new run; if a run with this id already exists, no other run is started. Raise Mistake if no worker
    can be started.
    """
    require_own_branch(worker)
    if worker.also:
        raise Mistake(
            f"{worker.name} worked in several repositories, so no new worker can continue from its branch; "
            "delegate a new task with --also"
        )
    if run and await launcher.has_run(run):
        [known] = await to_thread.run_sync(load_worker_states, settings.store, [run])
        return _describe(run, known.worker_task.branch)
    root = Path(worker.worker_task.root)
    repository = Repository.at(root)
    branch = worker.worker_task.branch
    options = WorkerOptions(base=await branch_tip(repository, branch), role=worker.worker_task.role or None)
    name = await choose_branch_name(repository, WorkerIndex(settings.store), branch, SUFFIX)
    agent, *others = load_roster(root, settings.home).resolve_team(worker.agent)
    with announce_keys(settings.store, run) as delivery:
        started = await delegate_to_worker(
            launcher,
            agent,
            format_review_task(worker, review),
            at=root,
            branch=name,
            by=by,
            options=options,
            run=delivery.run,
            settings=settings,
            agents=others,
        )
        start_commander(settings, delivery=delivery)
    return _describe(started, name)


def format_review_task(worker: WorkerState, review: str) -> str:
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
