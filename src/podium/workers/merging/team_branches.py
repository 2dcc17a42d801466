"""Find out which branches of a repository are the results of teams, and which are only parts of a team's work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from ...store.reader import StoreReader
from ...values.errors import NoSuchRun, StoreCorrupt
from ...values.event import (
    KINDS,
    CandidateChosen,
    Entry,
    OperationEnded,
    PlanStepCompleted,
    PlanStepSubmitted,
    RunEnded,
    RunStarted,
    WorkEnded,
    WorkRestored,
)
from ...values.event.base_event import EventBase
from ...values.operation_path import PLAN_STEP, parse_agent_name, parse_plan_step
from ...values.store_address import StoreAddress
from ...views.worker_state import WorkerState
from ...workspace.git.repository import Repository, read_git_output
from ...workspace.git.revision import HEADS

RESULT_REFS = (f"{HEADS}podium/*/result", f"{HEADS}podium/*/best")
"""The refs of the branches with the results of teams."""

_TEAM_KINDS = (
    RunStarted,
    RunEnded,
    OperationEnded,
    PlanStepSubmitted,
    PlanStepCompleted,
    WorkEnded,
    CandidateChosen,
    WorkRestored,
)
E = TypeVar("E", bound=EventBase)
_MEMBER = "member:"
"""The prefix of a path segment that belongs to the member of a team."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamResult:
    """The outcome of a team's work on a branch of its own.

    `run` is the team's run, `lead` is the team's lead, and `commit` is the commit that the team delivered. `done` and
    `undone` list the ids of plan steps. If the result is the best of several attempts, `winner` is the member that made
    it. `forked_from` is the run from which the team's run was forked. `has_succeeded` is whether the run succeeded.
    """

    run: str
    lead: str
    branch: str
    commit: str
    done: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()
    winner: str = ""
    forked_from: str = ""
    has_succeeded: bool = False

    def describe(self, tip: str) -> str:
        """Describe the branch: its run, its steps, and whether it has changed since the team delivered it."""
        if self.winner:
            text = f"the best of several attempts in run {self.run}, made by {self.winner}"
        else:
            text = f"the result of {self.lead} in run {self.run}; steps done: {', '.join(self.done) or 'none'}"
        if self.undone:
            text += f"; not done: {', '.join(self.undone)}"
        return text if tip == self.commit else f"{text}; the branch has changed since the run ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamPart:
    """A worker's branch that is only a part of a team's work: what it is, and the branch with the result, if any."""

    what: str
    result: str = ""

    def __str__(self) -> str:
        return f"{self.what}; the team's result is on {self.result}" if self.result else self.what


@dataclass
class TeamRuns:
    """Reads what the runs of teams say about branches. Each run is read once."""

    store: StoreAddress
    _entries: dict[str, list[Entry]] = field(default_factory=dict)

    def find_result(self, branch: str) -> TeamResult | None:
        """Return the team's result that is on a branch, or None if the branch is not the result of a team."""
        start, _, run = branch.rpartition("/")[0].rpartition("/")
        if start != "podium" or not run:
            return None
        entries = self._read(run)
        delivered = [
            entry
            for entry in entries
            if isinstance(entry.event, WorkEnded | WorkRestored) and entry.event.branch == branch
        ]
        if not delivered:
            return None
        last, started = delivered[-1], entries[0].started
        winner = next((one.winner for one in _select(reversed(entries), CandidateChosen)), "")
        ended = last.event if isinstance(last.event, WorkEnded) else None
        return TeamResult(
            run=run,
            lead=parse_agent_name(last.operation),
            branch=branch,
            commit=last.event.commit if isinstance(last.event, WorkEnded | WorkRestored) else "",
            done=() if ended is None else ended.done,
            undone=() if ended is None else tuple(one.step for one in ended.undone),
            winner=winner if ended is None else "",
            forked_from=started.forked_from.partition("@")[0],
            has_succeeded=any(one.outcome == "succeeded" for one in _select(entries, RunEnded)),
        )

    def find_parts(self, workers: Iterable[WorkerState]) -> dict[str, TeamPart]:
        """Map each branch that is only a part of a team's work to what it is.

        These are the branches of the owners of plan steps, of attempts among which a team chose, of earlier attempts
        of a member, and of members of a team that did not succeed.
        """
        known = list(workers)
        newest = _find_newest_attempts(known)
        parts: dict[str, TeamPart] = {}
        for worker in known:
            branch = worker.worker_task.branch
            if branch and (part := self._describe_part(worker, newest, {one.run: one for one in known})) is not None:
                parts[branch] = part
        return parts

    def _describe_part(
        self, worker: WorkerState, newest: Mapping[tuple[str, str], WorkerState], by_run: Mapping[str, WorkerState]
    ) -> TeamPart | None:
        """Say what part of a team's work a worker did. Return None if its branch can be merged by itself."""
        task = worker.worker_task
        if not task.parent:
            return None
        entries = self._read(task.parent)
        for chosen in _select(entries, CandidateChosen):
            if any(one.branch == task.branch for one in chosen.candidates):
                return TeamPart(what=f"run {task.parent} chose among several attempts and kept the best")
        if parse_plan_step(task.operation):
            return _describe_step_part(worker, entries)
        last = newest.get(_attempt_key(worker), worker)
        name = parse_agent_name(task.operation)
        if last.worker_task.branch != task.branch:
            return TeamPart(
                what=f"it is an earlier attempt of {name} in run {task.parent}; the later one is on {last.name}"
            )
        for team in _list_teams(task.operation):
            outcome = next((end.outcome for end in _select(_filter_operation(entries, team), OperationEnded)), "")
            if outcome != "succeeded":
                how = "has not ended" if not outcome else "did not succeed"
                lead = parse_agent_name(team)
                return TeamPart(
                    what=f"it is the work of {name} for the team of {lead} in run {task.parent}, which {how}"
                )
        above = by_run.get(task.parent)
        return None if above is None else self._describe_part(above, newest, by_run)

    def _read(self, run: str) -> list[Entry]:
        """Return the events of a run that say something about branches. A run that cannot be read has none."""
        if run not in self._entries:
            self._entries[run] = []
            if self.store.exists():
                with suppress(StoreCorrupt, NoSuchRun), StoreReader(self.store) as reader:
                    self._entries[run] = reader.read_entries(run, kinds=[KINDS[kind] for kind in _TEAM_KINDS])
        return self._entries[run]


async def list_result_branches(repository: Repository) -> list[str]:
    """Return the names of the branches that can contain the result of a team, by age."""
    listed = await read_git_output(
        repository, "for-each-ref", "--sort=creatordate", "--format=%(refname)", *RESULT_REFS
    )
    return [ref.removeprefix(HEADS) for ref in listed.splitlines()]


def select_mergeable(results: Iterable[TeamResult]) -> tuple[list[TeamResult], dict[str, str]]:
    """Return the results that can be merged, and the reason for each branch whose result cannot."""
    ready: list[TeamResult] = []
    reasons: dict[str, str] = {}
    for one in results:
        if one.undone:
            reasons[one.branch] = f"part of the work of {one.lead} was not done ({', '.join(one.undone)})"
        elif not one.has_succeeded:
            reasons[one.branch] = f"run {one.run} of {one.lead} has not succeeded"
        else:
            ready.append(one)
    forks = {one.forked_from: one for one in ready if one.forked_from}
    for one in ready:
        if one.run in forks:
            reasons[one.branch] = f"run {forks[one.run].run}, a fork of run {one.run}, has a result of its own"
    return [one for one in ready if one.branch not in reasons], reasons


def _describe_step_part(worker: WorkerState, entries: Iterable[Entry]) -> TeamPart:
    task, found = worker.worker_task, list(entries)
    step = parse_plan_step(task.operation)
    lead = parse_agent_name(task.operation.partition(f"/{PLAN_STEP}")[0])
    submitted = [one for one in _select(found, PlanStepSubmitted) if one.step == step]
    is_last = bool(submitted) and submitted[-1].branch == task.branch
    is_done = any(one.step == step for one in _select(found, PlanStepCompleted))
    how = "accepted" if is_last and is_done else "not accepted"
    result = next((one.branch for one in _select(reversed(found), WorkEnded) if one.branch), "")
    what = f"it belongs to step {step} of {lead} in run {task.parent}: work of {worker.agent} that the team has {how}"
    return TeamPart(what=what, result=result)


def _find_newest_attempts(workers: Iterable[WorkerState]) -> dict[tuple[str, str], WorkerState]:
    """Map each member of a team to its last worker. A member that got several tasks has several."""
    newest: dict[tuple[str, str], WorkerState] = {}
    for worker in workers:
        key = _attempt_key(worker)
        if key != ("", "") and (key not in newest or _attempt_number(newest[key]) <= _attempt_number(worker)):
            newest[key] = worker
    return newest


def _attempt_key(worker: WorkerState) -> tuple[str, str]:
    """Return the run and the operation without its number if the worker itself is a team member, or empty strings."""
    task = worker.worker_task
    above, _, segment = task.operation.rpartition("/")
    start = segment.rpartition("#")[0]
    is_member = start.startswith(_MEMBER) and start.removeprefix(_MEMBER) == worker.agent
    return (task.parent, f"{above}/{start}") if task.parent and is_member else ("", "")


def _attempt_number(worker: WorkerState) -> int:
    number = worker.worker_task.operation.rpartition("#")[2]
    return int(number) if number.isdecimal() else 0


def _list_teams(operation: str) -> Iterator[str]:
    """Yield the operations of the teams that an operation works for, the innermost first."""
    segments = operation.split("/")
    for place in range(len(segments) - 1, 0, -1):
        if segments[place].startswith(_MEMBER):
            yield "/".join(segments[:place])


def _filter_operation(entries: Iterable[Entry], operation: str) -> Iterator[Entry]:
    return (entry for entry in entries if entry.operation == operation)


def _select(entries: Iterable[Entry], kind: type[E]) -> Iterator[E]:
    return (entry.event for entry in entries if isinstance(entry.event, kind))
