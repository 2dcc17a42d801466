"""Steer a run: send a message to an agent, pause the run, or change its budget."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from anyio import to_thread

from ..store.mailbox import post_to_mailbox
from ..store.reader import RunSummary, StoreReader
from ..values.agent import Budget
from ..values.attachment import AttachedFile
from ..values.errors import Mistake, RunHeld
from ..values.event import BudgetChanged, MessageReceived, PauseAsked
from ..values.store_address import StoreAddress
from .run_launcher import RunLauncher
from .run_lookup import derive_run_state, is_over, is_worker_run, resolve_recipient


def send_message(
    store: StoreAddress,
    summary: RunSummary,
    agent: str,
    text: str,
    *,
    by: str = "",
    files: Sequence[AttachedFile] = (),
    ref: str = "",
) -> str:
    """Send a message to an agent of a run, by default the first agent, and return a confirmation for the user.

    A message with a known `ref` is not sent again. The ref is kept apart from those of answers, which are the ids of
    requests: a message must not take the place of an answer.
    """
    to = resolve_recipient(summary, agent)
    attachments = tuple(one.attachment for one in files)
    message = MessageReceived(id=secrets.token_hex(6), to=to, text=text, by=by, attachments=attachments)
    post_to_mailbox(store, summary.id, message, ref=f"client:{ref}" if ref else "", files=files)
    if derive_run_state(summary) == "running":
        return f"{to} will receive the message with its next model call"
    return (
        f"run {summary.id} is not running; the message will be delivered when you resume it: podium resume {summary.id}"
    )


async def pause_run(launcher: RunLauncher, run: str, *, by: str = "") -> str:
    """Pause a run and return a message for the user. If it is running, its current steps finish first.

    Raise Mistake if the run has ended.
    """
    store = launcher.settings.store
    summary = await to_thread.run_sync(_read_summary, store, run)
    if is_over(summary):
        raise Mistake(f"run {run} has ended ({derive_run_state(summary)}) and cannot be paused")
    if derive_run_state(summary) == "paused":
        return f"run {run} is already paused; continue it with: podium resume {run}"
    if derive_run_state(summary) != "running":
        try:
            await launcher.pause_run(run)
        except RunHeld:
            pass  # a process has claimed it in the meantime
        else:
            return f"run {run} is paused; continue it with: podium resume {run}"
    await to_thread.run_sync(post_to_mailbox, store, run, PauseAsked(by=by))
    return f"pausing run {run}; its current steps finish first"


def post_budget_change(store: StoreAddress, summary: RunSummary, limits: Budget, *, by: str = "") -> BudgetChanged:
    """Request new limits for a run, and return the request. Raise Mistake if the run has ended."""
    if is_over(summary):
        again = (
            "delegate its task again"
            if is_worker_run(summary)
            else f"retry it with: podium retry {summary.id} --budget LIMITS"
        )
        raise Mistake(
            f"run {summary.id} has ended ({derive_run_state(summary)}) and cannot be resumed, so its budget cannot "
            f"be changed; {again}"
        )
    change = BudgetChanged(budget=limits, by=by)
    post_to_mailbox(store, summary.id, change)
    return change


def _read_summary(store: StoreAddress, run: str) -> RunSummary:
    with StoreReader(store) as reader:
        return reader.read_summary(run)
