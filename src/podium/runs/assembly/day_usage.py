"""Enforce daily budgets: add up the usage of all runs in a store since midnight, from their timelines.

The entries since midnight are read once. After that, only new entries are read, at most every two seconds, so the check
adds almost no time to a model call. Calls that are in flight, in any process, are not counted yet, so runs can exceed a
budget by the usage of these calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from anyio import Lock, to_thread

from ...core.budget import DAILY_BUDGET, LIMIT_UNITS, USAGE_FIELDS
from ...files.settings import Settings
from ...files.settings_files import REPO_FILE
from ...store.entry_feed import EntryFeed, FeedRow
from ...store.reader import StoreReader
from ...values.agent import Budget
from ...values.event import RunStarted, decode_entry
from ...values.store_address import StoreAddress
from ...values.usage import NO_USAGE, Usage, sum_usage
from ...views.run_state.model_usage import USAGE_KINDS, usage_of_event

REFRESH_SECONDS = 2.0
PAGE = 500


class DayUsage:
    """Today's usage of the runs in a store. The day starts at midnight in this machine's time zone."""

    def __init__(self, store: StoreAddress, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._lock = Lock()
        self._midnight = 0.0
        self._read_at = 0.0
        self._position = 0
        self._used: dict[str, Usage] = {}
        """The usage of each run since midnight."""
        self._starts: dict[str, RunStarted] = {}
        self._sums: dict[str, Usage] = {}
        """The usage at the last refresh, keyed by repository; the empty key is for all runs."""

    async def explain_used_up(self, settings: Settings, repository: str) -> str:
        """Return which daily budget is used up and when it resets, or an empty string if none is."""
        async with self._lock:
            now = self._clock()
            if now - self._read_at >= REFRESH_SECONDS or now < self._read_at:
                await to_thread.run_sync(self._refresh, now)
                self._read_at = now
                self._sums.clear()
        limits = ((settings.day_budget, "", "per_day"), (settings.repository_day_budget, repository, REPOSITORY_KEY))
        for budget, place, key in limits:
            # Only the budget for all runs applies to a run without a repository.
            if budget is None or (key == REPOSITORY_KEY and not repository):
                continue
            if exceeded := self._find_exceeded(budget, self._sum_usage(place)):
                return self._explain(exceeded, budget, self._sum_usage(place), key, settings)
        return ""

    def _sum_usage(self, repository: str) -> Usage:
        if repository not in self._sums:
            runs = [run for run in self._used if not repository or find_repository(self._starts[run]) == repository]
            self._sums[repository] = sum_usage(self._used[run] for run in runs)
        return self._sums[repository]

    def _find_exceeded(self, budget: Budget, used: Usage) -> str:
        """Return the first limit of the budget that has been reached, or an empty string."""
        limits = {name: getattr(budget, name) for name in USAGE_FIELDS}
        reached = (
            name for name, limit in limits.items() if limit is not None and getattr(used, USAGE_FIELDS[name]) >= limit
        )
        return next(reached, "")

    def _explain(self, limit: str, budget: Budget, used: Usage, key: str, settings: Settings) -> str:
        where = " for this repository" if key == REPOSITORY_KEY else ""
        resets = datetime.fromtimestamp(_find_next_midnight(self._clock())).astimezone()
        is_repo = settings.sources.get(f"budget.{key}.{limit}") == "repository file"
        file = f"the repository's {REPO_FILE}" if is_repo else "the settings"
        return (
            f"{DAILY_BUDGET} of {getattr(budget, limit):,g} {LIMIT_UNITS[limit]}{where} is used up "
            f"({getattr(used, USAGE_FIELDS[limit]):,.6g} used since midnight) and resets at "
            f"{resets:%Y-%m-%d %H:%M %Z}; to continue sooner, raise budget.{key}.{limit} in {file}"
        )

    def _refresh(self, now: float) -> None:
        midnight = find_midnight(now)
        if not self._store.exists():
            return
        with EntryFeed(self._store) as feed, StoreReader(self._store) as reader:
            read_start = partial(self._read_start, reader)
            if midnight != self._midnight:
                self._midnight, self._used = midnight, {}
                end = feed.find_end()
                self._position = 0 if end is None else end.position
                self._add_since_midnight(feed, read_start)
            while rows := feed.read_after(self._position, PAGE):
                for row in rows:
                    self._add_row(row, read_start)
                self._position = rows[-1].position

    def _add_since_midnight(self, feed: EntryFeed, read_start: Callable[[str], RunStarted]) -> None:
        """Add the usage of today's entries up to the position, newest first. Stop at the first older entry."""
        last = self._position + 1
        while rows := feed.read_before(last, PAGE, sorted(USAGE_KINDS)):
            for row in rows:
                if not self._add_row(row, read_start):
                    return
            last = rows[-1].position

    def _add_row(self, row: FeedRow, read_start: Callable[[str], RunStarted]) -> bool:
        """Add the usage of an entry, unless a fork copied the entry from another run.

        Return False if the entry's usage is from an earlier day, and True otherwise.
        """
        if row.kind not in USAGE_KINDS or row.seq <= 1 + read_start(row.run).shared:
            return True
        entry = decode_entry(row.line)
        if entry.at < self._midnight:
            return False
        self._used[row.run] = self._used.get(row.run, NO_USAGE) + usage_of_event(entry.event)
        return True

    def _read_start(self, reader: StoreReader, run: str) -> RunStarted:
        if run not in self._starts:
            self._starts[run] = reader.read_entries(run, most=1)[0].started
        return self._starts[run]


REPOSITORY_KEY = "per_repository_day"


def find_repository(started: RunStarted) -> str:
    """Return the folder of the repository for which a run's usage is counted.

    For a worker, this is the repository in which its task was delegated, and not the worker's own checkout.
    """
    return started.repo if started.errand is None else started.errand.root


def find_midnight(now: float) -> float:
    """Return when the day began in the time zone of this machine, in seconds since the epoch."""
    return datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()


def _find_next_midnight(now: float) -> float:
    """Return when the next day begins in the time zone of this machine, in seconds since the epoch."""
    day = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
    return (day + timedelta(days=1)).timestamp()
