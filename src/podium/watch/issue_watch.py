"""Watch a source of issues: claim new ones, choose an agent for each, start the work, and report how it ended.

An issue is claimed in the store before any work on it starts, and the ids of its runs are derived from the claim. So
no work is lost or repeated if a process is killed at any point, or if two processes watch the same source. Runs belong
to the commander, which works on them whether or not a watcher is running.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Literal

from anyio import move_on_after, sleep, to_thread

from ..files.discovery import Roster, load_roster
from ..files.settings import Settings
from ..runs.runs import Runs
from ..store.issue_rows import IssueClaim, IssueClaims
from ..store.reader import StoreReader
from ..store.request_list import list_run_requests
from ..store.store_lock import hold_store_lock
from ..values.actor import Actor
from ..values.agent import Agent
from ..values.errors import Mistake, NoSuchRun, OutsideFailed, PodiumError, StoreFailed
from ..values.event import Routed, RunEnded
from ..values.plain_text import escape_unprintable, truncate_text
from ..views.worker_state import WorkerState
from ..workers.commander_socket import commander_socket_path, is_commander_listening
from ..workers.delegation import start_commander
from ..workers.queries.worker_lookup import load_worker_state
from .issue_start import CommentPosting, IssueStart, format_comment
from .issue_triage import IssueScout, NewIssues, WatchOptions, find_candidates, read_choice
from .sources.issue_source import Issue, IssueSource

POLL_SECONDS = 1.0
"""How often to check whether a run has ended."""
TRIAGE_SECONDS = 120.0
"""How long a watcher that runs only one round waits for triage to choose agents.

If triage takes longer, the next round starts the work.
"""
FULL_SCAN_SECONDS = 3600.0
"""How often all open issues are read; in between, only those that have changed are read."""

MOST_REPORTED = 10_000
"""The maximum number of distinct problems, requests and skipped issues that a watcher reports in total."""

WatchEventKind = Literal["taken", "started", "asks", "person", "ended", "commented", "problem", "waiting", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """An event to report to the user. `count` is the number of skipped or waiting issues."""

    kind: WatchEventKind
    claim: IssueClaim | None = None
    text: str = ""
    count: int = 0


Report = Callable[[WatchEvent], None]


class IssueWatch:
    """Watches a source of issues for a repository.

    `by` is who watches, and so starts the runs. `report` is called with each event.
    """

    def __init__(
        self,
        runs: Runs,
        settings: Settings,
        source: IssueSource,
        options: WatchOptions,
        *,
        place: Path,
        by: Actor,
        report: Report,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._runs = runs
        self._settings = settings
        self._source = source
        self._options = options
        self._place = place
        self._by = by
        self._report = report
        self._now = now
        self._claims = IssueClaims(settings.store)
        self._posting = CommentPosting(self._claims, source, now)
        self._since = ""
        self._scanned_at = 0.0
        self._reported: set[str] = set()

    async def run_round(self) -> None:
        """Continue the work on the issues that are already claimed, and claim new ones."""
        await self.advance(is_round=True)
        start = await self._load_start()
        open_claims = await self._list_open()
        room = self._options.most_active - sum(claim.is_active for claim in open_claims)
        now = self._now()
        is_full = now - self._scanned_at >= FULL_SCAN_SECONDS
        scout = IssueScout(self._source, self._options, self._claims)
        new = await scout.find_new(min(self._options.limit, max(room, 0)), since="" if is_full else self._since)
        await self._take(new.found, start)
        self._report_others(new)
        self._since = scout.newest or self._since
        # Waiting issues have not changed, so only a full scan finds them again. Do one in the next round.
        self._scanned_at = 0.0 if new.waiting else now if is_full else self._scanned_at

    async def advance(self, *, is_round: bool = False) -> bool:
        """Start the next runs, record which runs have ended, and post comments. Return whether any issue is active.

        If `is_round`, also retry work that could not be started, and start a commander if a run needs one.
        """
        open_claims = await self._list_open()
        if await to_thread.run_sync(_has_news, self._settings, open_claims, is_round):
            async with self._lock():
                await self._advance_all(await self._load_start())
            open_claims = await self._list_open()
        if is_round and await to_thread.run_sync(_needs_commander, self._settings, open_claims):
            start_commander(self._settings)
        for claim, request in await to_thread.run_sync(_find_requests, self._settings, open_claims):
            self._report_once(WatchEvent(kind="asks", claim=claim, text=request))
        if self._options.comments:
            for claim in filter(self._posting.is_due, open_claims):
                await self._post_comment(claim)
        return any(claim.is_active for claim in open_claims)

    async def _list_open(self) -> list[IssueClaim]:
        return await to_thread.run_sync(self._claims.list_open, self._source.key)

    async def wait(self, *, until: float, is_triage_only: bool = False) -> None:
        """Call `advance` until the given time or until no issue is active.

        If `is_triage_only`, return as soon as all agents are chosen.
        """
        with move_on_after(max(0.0, until - self._now())):
            while await self.advance():
                if is_triage_only and not any(claim.state == "triage" for claim in await self._list_open()):
                    return
                await sleep(POLL_SECONDS)

    def _lock(self) -> AbstractAsyncContextManager[None]:
        name = f"watch-{sha256(self._source.key.encode()).hexdigest()[:16]}"
        return hold_store_lock(self._settings.store, name, doing="starting work on issues")

    async def _load_start(self) -> IssueStart:
        """Return an `IssueStart` with the current agents. Raise Mistake if a required agent cannot be used."""
        roster = await to_thread.run_sync(load_roster, self._place, self._settings.home)
        candidates = find_candidates(roster, self._options.agents)
        if self._source.has_members:
            _require_model(self._runs, self._settings, roster, candidates)
        return IssueStart(
            self._runs,
            self._settings,
            roster,
            candidates,
            place=self._place,
            source=self._source.name,
            by=self._by,
            is_delegated=self._options.is_delegated,
        )

    # Claiming new issues

    async def _take(self, issues: Sequence[Issue], start: IssueStart) -> None:
        if not issues:
            return
        async with self._lock():
            for issue in issues:
                claim = IssueClaim(
                    source=self._source.key,
                    issue=issue.id,
                    token=secrets.token_hex(8),
                    claimed=self._now(),
                    root=str(self._place),
                    title=issue.title,
                    body=issue.body,
                    author=issue.author,
                    url=issue.url,
                    agent=start.candidates[0].name if len(self._options.agents) == 1 else "",
                    comment="wanted" if self._options.comments else "",
                )
                if await to_thread.run_sync(self._claims.add, claim):
                    self._report(WatchEvent(kind="taken", claim=claim))
                    await self._try_to_advance(claim, start)

    def _report_others(self, new: NewIssues) -> None:
        for problem in new.problems:
            self._report_once(WatchEvent(kind="problem", text=escape_unprintable(problem)))
        for issue in new.by_strangers:
            text = f"{issue.name} by {issue.author or 'an unknown author'}"
            self._report_once(WatchEvent(kind="skipped", text=text, count=1))
        if new.waiting:
            more = "" if new.is_waiting_exact else " or more"
            self._report(WatchEvent(kind="waiting", count=new.waiting, text=more))

    def _report_once(self, event: WatchEvent) -> None:
        """Report an event only the first time, because every round finds it again."""
        key = f"{event.kind} {'' if event.claim is None else event.claim.issue} {event.text}"
        if key not in self._reported and len(self._reported) < MOST_REPORTED:
            self._reported.add(key)
            self._report(event)

    # Continuing the work on claimed issues

    async def _advance_all(self, start: IssueStart) -> None:
        # Read the claims under the lock, because another watcher may have changed them in the meantime.
        for claim in await self._list_open():
            if claim.is_active:
                await self._try_to_advance(claim, start)

    async def _try_to_advance(self, claim: IssueClaim, start: IssueStart) -> None:
        """Continue an issue. If that fails, report the error; the issue keeps its state and is tried again."""
        try:
            await self._advance_one(claim, start)
        except StoreFailed:
            raise
        except PodiumError as error:
            text = truncate_text(escape_unprintable(str(error)), 400)
            self._report_once(WatchEvent(kind="problem", claim=claim, text=text))
            await self._update(claim, note=text)

    async def _advance_one(self, claim: IssueClaim, start: IssueStart) -> None:
        if claim.state == "triage":
            chosen = await self._finish_triage(claim, start)
            if chosen is None:
                return
            claim = chosen
        if claim.state == "claimed" and not claim.agent:
            await start.start_triage(claim)
            await self._update(claim, state="triage")
        elif claim.state == "claimed":
            await self._start_work(claim, start)
        elif claim.state == "work":
            await self._finish_work(claim)

    async def _start_work(self, claim: IssueClaim, start: IssueStart) -> None:
        branch = start.choose_branch(claim)
        if branch and branch != claim.branch:
            await self._update(claim, branch=branch)
        await start.start_work(claim, branch)
        started = replace(claim, state="work", branch=branch, body="", note=claim.note)
        if await self._update(claim, state="work", branch=branch, body=""):
            self._report(WatchEvent(kind="started", claim=started))

    async def _finish_triage(self, claim: IssueClaim, start: IssueStart) -> IssueClaim | None:
        """Record the triage agent's choice, and return the claim if an agent was chosen."""
        ended = await to_thread.run_sync(_read_triage, self._settings, claim)
        if ended is None:
            return None
        choice = read_choice(ended.routed, [agent.name for agent in start.candidates])
        if choice.agent:
            chosen = replace(claim, state="claimed", agent=choice.agent, note=choice.reason)
            await self._update(claim, state="claimed", agent=choice.agent, note=choice.reason)
            return chosen
        why = choice.reason or ended.failure or "triage chose no agent"
        person = replace(claim, state="person", body="", note=truncate_text(escape_unprintable(why), 1000))
        if await self._update(claim, state="person", body="", note=person.note):
            self._report(WatchEvent(kind="person", claim=person, text=person.note))
        return None

    async def _finish_work(self, claim: IssueClaim) -> None:
        outcome = await to_thread.run_sync(_read_outcome, self._settings, claim.run)
        if outcome is None:
            return
        ended = replace(claim, state=outcome)
        if await self._update(claim, state=outcome):
            self._report(WatchEvent(kind="ended", claim=ended))

    async def _update(self, claim: IssueClaim, **changes: str | float) -> bool:
        return await to_thread.run_sync(partial(self._claims.update, claim, **changes))

    async def _post_comment(self, claim: IssueClaim) -> None:
        worker = await to_thread.run_sync(_read_worker, self._settings, claim) if claim.state != "person" else None
        try:
            posted = await self._posting.post(claim, format_comment(claim, worker))
        except OutsideFailed as error:
            self._report(WatchEvent(kind="problem", claim=claim, text=f"the comment was not posted: {error}"))
            return
        if posted is not None:
            self._report(WatchEvent(kind="commented", claim=posted, text=posted.comment_url))


def _require_model(runs: Runs, settings: Settings, roster: Roster, candidates: Sequence[Agent]) -> None:
    """Raise Mistake if an agent's replies would be simulated. The authors of issues must not get simulated answers."""
    agents = [one for agent in candidates for one in roster.resolve_team(agent.name)]
    if rehearsed := runs.find_rehearsed(agents, settings):
        raise Mistake(
            f"no model is configured, so {rehearsed[0]} would only give simulated answers; choose a model with podium "
            "models, or try podium watch with a folder of issues"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TriageEnd:
    """How a triage run ended: with a choice, or with a failure."""

    routed: Routed | None = None
    failure: str = ""


def _read_triage(settings: Settings, claim: IssueClaim) -> TriageEnd | None:
    """Return how the triage of an issue ended, or None if it has not ended."""
    with StoreReader(settings.store) as reader:
        try:
            last = reader.read_summary(claim.triage_run).last.event
        except NoSuchRun:
            return TriageEnd(failure="its triage run was removed")
        if not isinstance(last, RunEnded):
            return None
        entries = reader.read_entries(claim.triage_run, kinds=("routed",))
    routed = [entry.event for entry in entries if isinstance(entry.event, Routed)]
    return TriageEnd(
        routed=routed[-1] if routed and last.outcome == "succeeded" else None,
        failure="" if last.failure is None else f"triage failed: {last.failure}",
    )


def _read_outcome(settings: Settings, run: str) -> Literal["succeeded", "failed", "stopped"] | None:
    """Return how a run ended, or None if it has not ended."""
    with StoreReader(settings.store) as reader:
        try:
            last = reader.read_summary(run).last.event
        except NoSuchRun:
            return "stopped"  # a person removed it
    if not isinstance(last, RunEnded):
        return None
    return "succeeded" if last.outcome == "succeeded" else "stopped" if last.outcome == "cancelled" else "failed"


def _has_news(settings: Settings, claims: Sequence[IssueClaim], with_claimed: bool) -> bool:
    """Return whether the run of any claim has ended or, if `with_claimed` is set, whether any claim has no run yet."""
    runs = {"triage": "triage_run", "work": "run"}
    active = [getattr(claim, runs[claim.state]) for claim in claims if claim.state in runs]
    if with_claimed and any(claim.state == "claimed" for claim in claims):
        return True
    return any(_read_outcome(settings, run) is not None for run in active)


def _needs_commander(settings: Settings, claims: Sequence[IssueClaim]) -> bool:
    """Return whether a run for these claims is waiting for a commander and no commander is running."""
    runs = [claim.triage_run if claim.state == "triage" else claim.run for claim in claims if claim.is_active]
    if not runs or is_commander_listening(commander_socket_path(settings.store)):
        return False
    with StoreReader(settings.store) as reader:
        for run in runs:
            with suppress(NoSuchRun):
                if reader.read_summary(run).phase in ("queued", "resumable"):
                    return True
    return False


def _find_requests(settings: Settings, claims: Sequence[IssueClaim]) -> list[tuple[IssueClaim, str]]:
    """Return the ids of open requests from the runs that work on these issues."""
    working = [claim for claim in claims if claim.state == "work"]
    found: list[tuple[IssueClaim, str]] = []
    if working:
        with StoreReader(settings.store) as reader:
            for claim in working:
                with suppress(NoSuchRun):
                    summary = reader.read_summary(claim.run)
                    if not summary.is_over:
                        found += [(claim, one.asked.id) for one in list_run_requests(reader, summary)]
    return found


def _read_worker(settings: Settings, claim: IssueClaim) -> WorkerState | None:
    with StoreReader(settings.store) as reader:
        try:
            return load_worker_state(reader, claim.run)
        except NoSuchRun:
            return None
