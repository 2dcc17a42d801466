"""Fork a run: write a new run that shares the timeline of another run up to a position.

The fork is written in one transaction and can then be resumed like any other run. `fork_position` finds the
position and selects the entries to share, and `fork_checkouts` creates the fork's checkout.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread
from msgspec import Struct, structs

from ..files.agent_trust import digest_servers
from ..store.reader import StoreReader
from ..store.run_creators import find_foreign_creator
from ..store.run_integrity import require_intact_run
from ..values.actor import Actor, act
from ..values.agent import Budget
from ..values.errors import Mistake
from ..values.event import (
    KINDS,
    BudgetChanged,
    Entry,
    Event,
    MessageReceived,
    ModelReplied,
    Noticed,
    RunEnded,
    RunStarted,
    decode_entry,
)
from ..values.store_address import StoreAddress
from ..views.run_state.tree import map_member_names
from .assembly.preflight import validate_request
from .fork_checkouts import ForkCheckout, create_fork_checkout, note_fork, remove_unfinished_forks
from .fork_position import (
    DecisionChange,
    ForkedEntries,
    find_decision_change,
    find_fork_position,
    find_retry_position,
    select_entries,
)
from .runs import Runs


class NewFork(Struct, forbid_unknown_fields=True):
    """The point at which a fork starts, and its new request, decision or budget.

    `podium fork` has options with the same meaning.
    """

    at: str = ""
    """A snapshot or a sequence number; by default the last snapshot, or the last entry if there is none."""
    request: str = ""
    """A message for the first agent, and for all members of a collaborating team."""
    decision: str = ""
    """A decision to change; the default position is then just before the decision."""
    option: str = ""
    """The new option to choose for the decision."""
    budget: Budget | None = None


class NewRetry(Struct, forbid_unknown_fields=True):
    """The point at which to retry a run, and a budget for the retry.

    `start` names a plan step or an agent. By default, the retry starts just before the run failed or was stopped.
    """

    start: str = ""
    budget: Budget | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkedRun:
    """A fork of the run `source` at the position `at`: the fork's checkout, and the entries that both runs share."""

    id: str
    source: str
    at: int
    forked: ForkedEntries
    checkout: ForkCheckout

    @property
    def notices(self) -> tuple[str, ...]:
        """Notices for the user about omitted or changed entries and about the checkout."""
        return (*self.forked.notices, *self.checkout.notices)

    @property
    def shared_calls(self) -> int:
        """The number of model calls that the fork shares with the original run."""
        return sum(isinstance(entry.event, ModelReplied) for entry in self.forked.kept)


@act("act")
async def fork_run(runs: Runs, source: str, new: NewFork, *, by: Actor, id: str = "") -> ForkedRun:
    """Write a fork of a run to the store and return the fork. Raise Mistake if the run cannot be forked.

    `id` is an id chosen in advance for the fork. In the HTTP API, changing a decision also needs the scope `approve`.
    """
    entries = await _load_source(runs, source)
    change = find_decision_change(entries, new.decision, new.option, by=by.name) if new.decision else None
    if new.request:
        validate_request(new.request)
    position = _choose_position(entries, new.at, change)
    return await _write_fork(
        runs, entries, position, request=new.request, change=change, budget=new.budget, by=by, id=id
    )


@act("act")
async def retry_run(runs: Runs, source: str, new: NewRetry, *, by: Actor, id: str = "") -> ForkedRun:
    """Fork a run that has ended, at the position just before it failed or was stopped, and return the fork.

    `id` is an id chosen in advance for the fork. Raise Mistake if the run cannot be retried.
    """
    entries = await _load_source(runs, source)
    if not isinstance(entries[-1].event, RunEnded):
        raise Mistake(
            f"run {source} has not ended, so it cannot be retried; continue it with podium resume {source}, or start a "
            f"new run from it with podium fork {source}"
        )
    return await _write_fork(runs, entries, find_retry_position(entries, new.start), budget=new.budget, by=by, id=id)


def _choose_position(entries: Sequence[Entry], at: str, change: DecisionChange | None) -> int:
    """Return the position of a fork. Raise Mistake if `at` is not a possible position.

    If the fork changes a decision, the position is between the proposal and the outcome of that decision.
    """
    if change is None:
        return find_fork_position(entries, at)
    position = min(find_fork_position(entries, at), change.latest) if at else change.latest
    if position < change.earliest:
        raise Mistake(
            f"the decision was proposed at entry {change.earliest}, after the position {at!r}; "
            "leave out --at to fork just before it was made"
        )
    return position


async def _load_source(runs: Runs, source: str) -> list[Entry]:
    """Return the entries of the run to fork.

    Raise Mistake for a worker's run, and StoreCorrupt if entries were changed or lost.
    """
    store = runs.settings.store

    def read_timeline() -> list[Entry]:
        with StoreReader(store) as reader:
            reader.read_summary(source)  # raises NoSuchRun
            rows = reader.read_rows(source)
        # A copied entry gets a new hash, which would hide that the original was changed.
        require_intact_run(store, source, rows)
        return [decode_entry(row.line) for row in rows]

    if (creator := find_foreign_creator(store, source)) is not None:
        how = f"confirm it with podium resume {source}, or " if creator.is_unknown else ""
        raise Mistake(
            f"run {source} was created by a host, or it is not known by whom, so it cannot be forked: its "
            f"record could contain anything; {how}start a new run with podium run instead"
        )
    entries = await to_thread.run_sync(read_timeline)
    worker_task = entries[0].started.errand
    # A run in the background has its own process, but is not part of another run.
    if worker_task is not None and not (worker_task.is_here and not worker_task.parent):
        what = (
            f"fork run {worker_task.parent}, which started the worker"
            if worker_task.parent
            else "delegate its task again"
        )
        raise Mistake(f"run {source} belongs to a worker and cannot be forked by itself; {what}")
    return entries


async def _write_fork(
    runs: Runs,
    entries: Sequence[Entry],
    at: int,
    *,
    request: str = "",
    change: DecisionChange | None = None,
    budget: Budget | None = None,
    by: Actor,
    id: str,
) -> ForkedRun:
    id, started, source = id or secrets.token_hex(6), entries[0].started, entries[0].run
    runs.check_budget(started, budget)
    forked = select_entries(entries, at, run=id)
    _require_work_left(source, started, forked, at)
    checkout = ForkCheckout()
    async with AsyncExitStack() as noted:
        if started.repo:
            await remove_unfinished_forks(runs.settings)
            folder = await to_thread.run_sync(_find_directory, runs.settings.store, started)
            await noted.enter_async_context(note_fork(runs.settings, id, folder))
            checkout = await create_fork_checkout(runs.settings, folder, entries, forked.kept, run=id)
        events: list[Event] = [Noticed(text=text) for text in (*forked.notices, *checkout.notices)]
        events += _iter_messages(started, request, by)
        added = [Entry(run=id, seq=0, at=time.time(), scope="", event=event) for event in events]
        if change is not None:
            added += [structs.replace(entry, at=time.time()) for entry in change.entries if entry.seq > at]
        if budget is not None:
            added.append(_change_budget(forked.kept, budget, run=id, by=by))
        begun = structs.replace(
            started,
            forked_from=f"{source}@{at}",
            shared=len(forked.kept),
            repo=checkout.directory,
            errand=None,
            servers=digest_servers(started.agents, runs.settings.mcp_servers),
        ).with_actor(by)
        await runs.copy(begun, (*forked.kept, *added), id=id, source=source)
    return ForkedRun(id=id, source=source, at=at, forked=forked, checkout=checkout)


def _find_directory(store: StoreAddress, started: RunStarted) -> Path:
    """Return the folder of a run. If a fork's checkout was removed, return the folder of the original run."""
    with StoreReader(store) as reader:
        while started.forked_from and not Path(started.repo).exists():
            source, _, _ = started.forked_from.partition("@")
            started = reader.read_summary(source).started
    return Path(started.repo)


def _require_work_left(source: str, started: RunStarted, forked: ForkedEntries, at: int) -> None:
    """Raise Mistake if the first agent has already answered, because the fork would have nothing to do."""
    # The path of the first operation is the name of its agent, and the key of its outcome is that path.
    if any(entry.key == started.agent for entry in forked.kept):
        raise Mistake(
            f"run {source} has nothing left to do at entry {at}: {started.agent} had already answered; give an earlier "
            f"position with --at (run podium logs {source} to list the entries)"
        )


def _iter_messages(started: RunStarted, request: str, by: Actor) -> Iterator[MessageReceived]:
    """Yield one message with the new request for each recipient. If the request is empty, yield nothing."""
    if not request:
        return
    team = next((agent.team for agent in started.agents if agent.name == started.agent), None)
    members = map_member_names(team) if team is not None and team.mode == "collaborate" else ()
    for name in dict.fromkeys((started.agent, *members)):
        yield MessageReceived(id=secrets.token_hex(6), to=name, text=request).with_actor(by)


def _change_budget(kept: Sequence[Entry], budget: Budget, *, run: str, by: Actor) -> Entry:
    number = 1 + sum(isinstance(entry.event, BudgetChanged) for entry in kept)
    key = f"/{KINDS[BudgetChanged]}#{number}"
    return Entry(run=run, seq=0, at=time.time(), scope="", key=key, event=BudgetChanged(budget=budget).with_actor(by))
