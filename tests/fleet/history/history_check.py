"""Check a history: what the timelines say, against what the model server, the effects and the answerers saw."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

import msgspec

from podium.store.reader import StoreReader
from podium.store.store_check import find_damage
from podium.values.event import (
    ActionBegan,
    Entry,
    ModelReplied,
    PermissionAnswered,
    PermissionAsked,
    RunEnded,
    RunResumed,
    RunStarted,
    ToolAnswered,
    WorkCommitted,
    WorkMoved,
)

from .answerer import read_attempts
from .history_lab import HistoryLab, read_effects
from .run_plan import RunPlan

E = TypeVar("E")
LEAD = RunPlan(branch="", moves=[], marks=(), files=())
"""What the lead of a team does itself: nothing that is counted."""


@dataclass
class HistoryReport:
    """What happened in a history. `problems` is empty if every promise was kept."""

    runs: int = 0
    entries: int = 0
    takeovers: int = 0
    calls: int = 0
    calls_made_again: int = 0
    """Calls that were made again because their first reply was not on the timeline."""
    effects: int = 0
    interrupted: int = 0
    """Commands that died with their process, so that it is unknown whether they have run."""
    requests: int = 0
    answers: int = 0
    late_answers: int = 0
    refused_writes: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return ", ".join(
            f"{name.replace('_', ' ')} {value}" for name, value in vars(self).items() if name != "problems"
        )


class _LoggedCall(msgspec.Struct, frozen=True):
    at: float
    key: str


@dataclass
class _Run:
    """The timeline of one run, with its plan. Its name is that of the plan or, for a lead, of its team."""

    id: str
    name: str
    plan: RunPlan
    entries: list[Entry]

    def list_events(self, kind: type[E]) -> list[E]:
        return [entry.event for entry in self.entries if isinstance(entry.event, kind)]


class HistoryCheck:
    """Compares the timelines of all runs with what others saw."""

    def __init__(self, lab: HistoryLab) -> None:
        self._lab = lab
        self._plans = {plan.branch: plan for plan in lab.plan.runs}
        self._plans |= {plan.branch: plan for team in lab.plan.teams for plan in team.members}
        self._leads = {team.name for team in lab.plan.teams}
        self._effects = Counter(read_effects(lab.effects))
        lines = lab.model_log.read_bytes().splitlines()
        self._calls: defaultdict[str, list[float]] = defaultdict(list)
        for call in (msgspec.json.decode(line, type=_LoggedCall) for line in lines):
            self._calls[call.key].append(call.at)
        self._attempts = read_attempts(lab.attempts)
        self.report = HistoryReport(
            calls=len(lines),
            effects=self._effects.total(),
            answers=sum(not attempt.counts for attempt in self._attempts),
        )

    def run(self) -> HistoryReport:
        """Check everything, and return what was found."""
        runs = list(self._read_runs())
        self.report.runs = len(runs)
        started = Counter(run.name for run in runs)
        for name in self._plans.keys() | self._leads:
            if started[name] != 1:
                self._add_problem(f"{name} was started {started[name]} times")
        for run in runs:
            self._check_end(run)
            self._check_model_calls(run)
            self._check_effects(run)
            self._check_files(run)
            self._check_answers(run)
        self._check_epochs()
        self._check_services()
        refusals = self._lab.query("SELECT coalesce(sum(count), 0) FROM podium.refusal WHERE act = 'append'")
        self.report.refused_writes = int(refusals[0][0])
        return self.report

    def _add_problem(self, text: str) -> None:
        self.report.problems.append(text)

    def _read_runs(self) -> Iterator[_Run]:
        with StoreReader(self._lab.store) as reader:
            for id in reader.list_run_ids():
                rows = reader.read_rows(id)
                if (damage := find_damage(reader.path, id, rows)) is not None:
                    self._add_problem(f"run {id} does not verify: {damage}")
                entries = reader.read_entries(id)
                self.report.entries += len(entries)
                started = entries[0].event if entries else None
                if not isinstance(started, RunStarted):
                    self._add_problem(f"run {id} has no start")
                elif started.errand is None:
                    yield _Run(id, started.request.text, LEAD, entries)
                else:
                    name = started.agent if started.errand.parent else started.errand.branch
                    yield _Run(id, name, self._plans[name], entries)

    def _check_end(self, run: _Run) -> None:
        ends = run.list_events(RunEnded)
        self.report.takeovers += max(0, len(run.list_events(RunResumed)) - 1)
        if len(ends) != 1 or not isinstance(run.entries[-1].event, RunEnded):
            self._add_problem(f"run {run.id} has {len(ends)} ends, and its last entry is {run.entries[-1].event}")
        elif ends[0].outcome != "succeeded":
            self._add_problem(f"run {run.id} has {ends[0].outcome}: {ends[0].failure}")

    def _check_model_calls(self, run: _Run) -> None:
        """Check that no call was made after its reply was on the timeline."""
        replies = [entry for entry in run.entries if isinstance(entry.event, ModelReplied)]
        if run.plan is not LEAD and len(replies) != len(run.plan.moves):
            self._add_problem(f"run {run.id} has {len(replies)} replies for {len(run.plan.moves)} moves")
        if len({entry.key for entry in replies}) != len(replies):
            self._add_problem(f"run {run.id} has two replies to one call")
        for entry in replies:
            calls = self._calls[f"{run.id}/{entry.key}"]
            self.report.calls_made_again += len(calls) - 1
            if not calls or min(calls) > entry.at:
                self._add_problem(f"run {run.id}: the reply {entry.key} was on the timeline before its call: {calls}")
            for at in calls:
                if at > entry.at:
                    self._add_problem(
                        f"run {run.id}: the call {entry.key} was repeated {at - entry.at:.3f} s after its reply"
                    )

    def _check_effects(self, run: _Run) -> None:
        """Check that each command has had its effect at most once, and exactly once if it succeeded."""
        commands = [
            (mark, f"call-{place}-0")
            for mark in run.plan.marks
            for place, move in enumerate(run.plan.moves)
            if any(mark in str(call) for call in move.calls)
        ]
        answers = {event.id: event for event in run.list_events(ToolAnswered)}
        for mark, call in commands:
            count, answer = self._effects[mark], answers.get(call)
            self.report.interrupted += answer is not None and "was interrupted" in answer.text
            if count > 1:
                self._add_problem(f"run {run.id}: the effect {mark} has happened {count} times")
            if answer is None:
                self._add_problem(f"run {run.id}: the command {mark} has no answer")
            elif not answer.is_error and count != 1:
                self._add_problem(f"run {run.id}: {mark} succeeded, but has {count} effects: {answer.text}")
            began = any(mark in str(event.action) for event in run.list_events(ActionBegan))
            if count and not began:
                self._add_problem(f"run {run.id}: the effect {mark} was not recorded before it happened")

    def _check_files(self, run: _Run) -> None:
        """Check that each file that was written is committed, or is said to be lost with its host."""
        committed = {path for event in run.list_events(WorkCommitted) for path in event.files}
        said = " ".join(text for event in run.list_events(WorkMoved) for text in event.unpushed)
        for file in run.plan.files:
            if file not in committed and file not in said:
                self._add_problem(f"run {run.id}: {file} is neither committed nor said to be lost: {committed}")

    def _check_answers(self, run: _Run) -> None:
        """Check that each request has one answer on the timeline: the one that the answerers were told counts."""
        asked = run.list_events(PermissionAsked)
        self.report.requests += len(asked)
        if len({one.id for one in asked}) != len(asked):
            self._add_problem(f"run {run.id} asked twice with one id")
        given = Counter(answer.id for answer in run.list_events(PermissionAnswered))
        for one in asked:
            if given[one.id] != 1:
                self._add_problem(f"run {run.id}: request {one.id} has {given[one.id]} answers on the timeline")
        for answer in run.list_events(PermissionAnswered):
            attempts = [attempt for attempt in self._attempts if attempt.request == answer.id]
            told = {(attempt.counts, attempt.counts_by) for attempt in attempts if attempt.counts}
            self.report.late_answers += sum(
                bool(attempt.counts) and attempt.by != attempt.counts_by for attempt in attempts
            )
            if (answer.decision, answer.by) not in {(attempt.decision, attempt.by) for attempt in attempts}:
                self._add_problem(f"run {run.id}: nobody gave the answer {answer}")
            if told - {(answer.decision, answer.by)}:
                self._add_problem(f"run {run.id}: {told} was said to count, but {answer} was applied")
        self._check_denied(run)

    def _check_denied(self, run: _Run) -> None:
        denied = {answer.id for answer in run.list_events(PermissionAnswered) if answer.decision == "deny"}
        for asked in run.list_events(PermissionAsked):
            marks = [mark for mark in run.plan.marks if mark in str(asked.action)]
            if asked.id in denied and any(self._effects[mark] for mark in marks):
                self._add_problem(f"run {run.id}: {marks} was denied, and happened")

    def _check_epochs(self) -> None:
        """Check that no process wrote after another one had taken over its run."""
        epochs: defaultdict[str, list[int]] = defaultdict(list)
        for run, epoch in self._lab.query("SELECT run, epoch FROM podium.entry ORDER BY run, seq"):
            epochs[run].append(epoch)
        for run, found in epochs.items():
            if any(later < earlier for earlier, later in pairwise(found)):
                self._add_problem(f"run {run} has entries of a process that had lost it: epochs {found}")

    def _check_services(self) -> None:
        for host in self._lab.list_services("host"):
            if host.own_exits:
                self._add_problem(f"{host.name} ended by itself with exit codes {host.own_exits}")
        if left := self._lab.query("SELECT run FROM podium.job WHERE NOT is_over"):
            self._add_problem(f"jobs that are not over: {left}")
