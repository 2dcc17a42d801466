"""The outlook: the workers of a store that are not over, and how they and those that they follow stand.

It is read off the timelines each time anew. What to do about it is for the schedule and the commander.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..store.sqlite.reader import Reader, Summary
from ..store.sqlite.worker_index import Crew
from ..values.errors import StoreCorrupt
from ..values.event import KINDS, Entry, RunEnded, RunPaused, RunResumed, RunStarted, decode
from .worker_queue import Job, Rest, Steps, steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What there is to do. `told` has of those that are followed who they were and how they ended."""

    started: Mapping[str, RunStarted]
    rest: Mapping[str, Rest]
    told: Mapping[str, str]
    stopped: frozenset[str]
    """Those that somebody wants to end, and that nobody else works on."""

    @property
    def roots(self) -> frozenset[str]:
        """The repositories that they work in."""
        return frozenset(started.errand.root for started in self.started.values() if started.errand is not None)

    def steps(self, *, running: Collection[str] = (), most: int, within: Mapping[str, int] | None = None) -> Steps:
        """Whom to start, and who cannot be started any more; `within` is the most in each repository."""
        jobs = [job_of(run, started) for run, started in self.started.items()]
        return steps(jobs, rest=self.rest, running=running, most=most, within=within, told=self.told)

    @property
    def is_taken(self) -> bool:
        """Whether somebody else works on one of the runs."""
        return any(self.rest[run] == "taken" for run in self.started)


def look(store: Path, *, ours: Collection[str], but: Collection[str] = ()) -> Outlook:
    """How it stands; `ours` are the runs that our own workers are on, `but` those that nothing can be done about.

    Those that are over are noted as such.
    """
    crew = Crew(store)
    rest: dict[str, Rest] = {}
    told: dict[str, str] = {}
    started: dict[str, RunStarted] = {}
    with Reader(store) as reader:
        for hired in crew.open():
            if hired.run in but:
                continue
            # What cannot be read, because a newer Podium wrote it or it is damaged, keeps nobody else from working.
            with suppress(StoreCorrupt):
                summary = reader.summary(hired.run)
                before = [reader.summary(run) for run in followed(began(summary))]
                rest[hired.run] = standing(summary, is_ours=hired.run in ours)
                if rest[hired.run] in ("open", "paused", "taken"):
                    started[hired.run] = began(summary)
                else:
                    crew.dismiss(hired.run)
                for one in before:
                    rest.setdefault(one.id, resting(one.last))
                    told[one.id] = parting(one)
    stopped = frozenset(run for run in crew.stopped() if rest.get(run) in ("open", "paused"))
    return Outlook(started=started, rest=rest, told=told, stopped=stopped)


def has_work(store: Path, but: Collection[str] = ()) -> bool:
    """Whether a commander could start anybody now, has to end somebody, or to tell that it never will be started."""
    outlook = look(store, ours=(), but=but)
    return any(outlook.steps(most=1)) or outlook.is_taken or bool(outlook.stopped)


def standing(summary: Summary, *, is_ours: bool) -> Rest:
    """How a worker's run stands; one that a live process has that is none of our workers is taken."""
    rest = resting(summary.last)
    is_held = summary.owner is not None and summary.owner.is_alive and not is_ours
    return "taken" if rest in ("open", "paused") and is_held else rest


def began(summary: Summary) -> RunStarted:
    """How a run began."""
    assert isinstance(summary.first.event, RunStarted)
    return summary.first.event


def resting(last: Entry) -> Rest:
    """How a run stands, by the last thing on its timeline."""
    match last.event:
        case RunEnded(outcome="succeeded" | "failed" | "timed_out" | "cancelled" as outcome):
            return outcome
        case RunEnded():
            return "failed"
        case RunPaused():
            return "paused"
        case _:
            return "open"


def was_paused_by(store: Path, run: str, pid: int) -> bool:
    """Whether a process has paused a run that it worked on, whatever became of that since."""
    is_paused = False
    with Reader(store) as reader:
        for row in reversed(reader.of_kinds(run, (KINDS[RunPaused], KINDS[RunResumed]))):
            event = decode(row.line).event
            if isinstance(event, RunResumed) and event.pid == pid:
                return is_paused
            is_paused = is_paused or isinstance(event, RunPaused)
    return False


def parting(summary: Summary) -> str:
    """Who a worker was and how it ended, for those that were to follow it."""
    how, why = "has not succeeded", ""
    if isinstance(summary.last.event, RunEnded):
        outcome, failure = summary.last.event.outcome, summary.last.event.failure
        how = {"cancelled": "was cancelled", "timed_out": "timed out"}.get(outcome, str(outcome))
        why = "" if failure is None else f": {failure}"
    return f"{name_of(summary.id, began(summary))}, which it was to follow, {how}{why}"


def job_of(run: str, started: RunStarted) -> Job:
    """A worker as the schedule sees it."""
    name, errand = name_of(run, started), started.errand
    if errand is None:
        return Job(run, name)
    return Job(run, name, after=errand.after, parent=errand.parent, root=errand.root)


def name_of(run: str, started: RunStarted) -> str:
    """What people call a worker."""
    return (started.errand.called if started.errand is not None else "") or run


def followed(started: RunStarted) -> tuple[str, ...]:
    """The runs of the workers that have to succeed before this one."""
    return () if started.errand is None else started.errand.after
