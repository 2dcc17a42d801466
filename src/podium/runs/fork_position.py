"""Find where to fork a run: at a snapshot, at an entry, or just before a decision or a failure.

A position is a sequence number. The fork shares the entries up to and including this number. The functions here do
not change any run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import structs

from ..values.errors import Failure, FailureKind, Mistake
from ..values.event import (
    CallFailed,
    DecisionCommitted,
    DecisionProposed,
    Entry,
    ModelReplied,
    OperationEnded,
    OperationStarted,
    PlanStepFailed,
    PlanStepStarted,
    RunEnded,
    SnapshotTaken,
    StopAsked,
    TurnEnded,
    VoteClosed,
)

HOW_DECIDED = "decided by a person (fork)"

OUTSIDE: frozenset[FailureKind] = frozenset({"budget", "engine", "timed_out"})
"""The kinds of failures that the agent did not cause. After such a failure, a retry keeps the agent's earlier work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionChange:
    """A decision that a fork changes to another option.

    `entries` contains the entries that record the results of votes on the decision, if any, followed by the entry with
    the changed decision. The position of the fork must be between `earliest`, the entry of the proposal, and `latest`,
    the last entry before the decision.
    """

    entries: tuple[Entry, ...]
    earliest: int
    latest: int


def find_fork_position(entries: Sequence[Entry], at: str) -> int:
    """Return the position of the snapshot or entry `at`; by default, of the last snapshot.

    If `at` is empty and there is no snapshot, return the position of the last entry. Raise Mistake if there is no
    snapshot or entry `at`.
    """
    snapshots = {entry.event.name: entry.seq for entry in entries if isinstance(entry.event, SnapshotTaken)}
    last = entries[-1].seq
    if not at:
        return max(snapshots.values(), default=last)
    if at in snapshots:
        return snapshots[at]
    if at.isascii() and at.isdecimal() and 1 <= int(at) <= last:
        return int(at)
    named = f" or one of the snapshots {', '.join(snapshots)}" if snapshots else ""
    raise Mistake(f"run {entries[0].run} has no snapshot or entry {at!r}; give an entry number from 1 to {last}{named}")


def find_decision_change(entries: Sequence[Entry], decision: str, option: str, *, by: str) -> DecisionChange:
    """Return the change that sets a decision to `option`.

    Raise Mistake if there is no such decision or option, or if the decision has not been made.
    """
    run = entries[0].run
    proposals = {entry.event.id: entry for entry in entries if isinstance(entry.event, DecisionProposed)}
    if decision not in proposals:
        there = f"available: {', '.join(proposals)}" if proposals else "it has no decisions"
        raise Mistake(f"run {run} has no decision {decision!r}; {there}")
    proposed = proposals[decision]
    assert isinstance(proposed.event, DecisionProposed)
    if option not in proposed.event.options:
        options = ", ".join(proposed.event.options)
        raise Mistake(f"{option!r} is not an option for the decision {decision!r}; available: {options}")
    ended = [
        entry
        for entry in entries
        if isinstance(entry.event, VoteClosed | DecisionCommitted) and entry.event.decision == decision
    ]
    made = ended[-1] if ended else proposed
    if not isinstance(made.event, DecisionCommitted):
        raise Mistake(f"the decision {decision!r} in run {run} has not been made yet, so it cannot be changed")
    changed = structs.replace(made, event=_change_option(made.event, option, by))
    return DecisionChange(entries=(*ended[:-1], changed), earliest=proposed.seq, latest=made.seq - 1)


def _change_option(made: DecisionCommitted, option: str, by: str) -> DecisionCommitted:
    participants = tuple(dict.fromkeys(filter(None, (*made.participants, by))))
    return DecisionCommitted(decision=made.decision, option=option, how=HOW_DECIDED, by=by, participants=participants)


def find_retry_position(entries: Sequence[Entry], start: str) -> int:
    """Return the position from which to retry a run that has ended.

    `start` is the plan step or agent to start again. If it is empty, the run is retried from just before it failed or
    was stopped. Raise Mistake if the run has no such plan step or agent, or if `start` is empty and the run succeeded.
    """
    return _find_start(entries, start) if start else _find_failure(entries)


def _find_start(entries: Sequence[Entry], start: str) -> int:
    steps: dict[str, int] = {}
    agents: dict[str, int] = {}
    for entry in entries:
        match entry.event:
            case PlanStepStarted(step=step):
                steps.setdefault(step, entry.seq - 1)
            case OperationStarted(agent=agent):
                agents.setdefault(agent, entry.seq - 1)
    if start in steps:
        return steps[start]
    if start in agents:
        return agents[start]
    there = f"plan steps: {', '.join(steps)}; " if steps else ""
    raise Mistake(
        f"run {entries[0].run} has not started a plan step or agent {start!r}; {there}agents: {', '.join(agents)}"
    )


def _find_failure(entries: Sequence[Entry]) -> int:
    """Return the position on the timeline just before the failure or the stop request that ended a run."""
    run, ended = entries[0].run, entries[-1]
    assert isinstance(ended.event, RunEnded), "only a run that has ended can be retried"
    if ended.event.outcome == "succeeded":
        raise Mistake(f"run {run} succeeded, so there is no failure to retry; give an agent or a plan step with --from")
    if (failure := ended.event.failure) is None:
        return next((entry.seq for entry in entries if isinstance(entry.event, StopAsked)), ended.seq) - 1
    # A failure first ends the operation in which it occurred, and then the operations above it, so look for the
    # operation that ended first.
    for entry in entries:
        if isinstance(entry.event, OperationEnded) and _is_cause(entry.event.failure, failure):
            return _find_failed_step(entries, entry)
    # The first agent answered, but some model calls were refused because of a limit of the run.
    refused = (
        entry
        for entry in entries
        if isinstance(entry.event, TurnEnded)
        and entry.event.failure is not None
        and failure.message.startswith(entry.event.failure.message)
    )
    return next(refused, ended).seq - 1


def _is_cause(known: Failure | None, failure: Failure) -> bool:
    """Return whether `known`, the failure of an operation, is the `failure` that ended the run."""
    if known is None:
        return False
    # If a later stage of a handoff fails, the message of the run's failure contains the original message.
    is_same = (known.agent, known.message) == (failure.agent, failure.message)
    return is_same or (bool(failure.where) and known.message in failure.message)


def _find_failed_step(entries: Sequence[Entry], ended: Entry) -> int:
    """Return the position just before the failed call of an operation.

    If the agent caused the failure, return the position just before the start of the failed plan step or, if no plan
    step failed, of the operation.
    """
    own = [entry for entry in entries if entry.operation == ended.operation and entry.seq <= ended.seq]
    assert isinstance(ended.event, OperationEnded)
    assert ended.event.failure is not None
    if ended.event.failure.kind not in OUTSIDE:
        return _find_own_start(own) - 1
    step = next((one for one in reversed(own) if isinstance(one.event, TurnEnded) and one.event.failure), ended)
    replied = {_call_key(entry) for entry in own if isinstance(entry.event, ModelReplied)}
    attempts = (
        entry.seq
        for entry in own
        if isinstance(entry.event, CallFailed)
        and entry.key.startswith(f"{step.key}/")
        and _call_key(entry) not in replied
    )
    return min((step.seq, *attempts)) - 1


def _find_own_start(own: Sequence[Entry]) -> int:
    """Return the number of the entry that started the failed plan step or, if no plan step failed, the operation."""
    failed = next((entry for entry in own if isinstance(entry.event, PlanStepFailed)), None)
    for entry in own:
        if failed is None and isinstance(entry.event, OperationStarted):
            return entry.seq
        if failed is not None and isinstance(entry.event, PlanStepStarted) and _is_below(entry, failed):
            return entry.seq
    return own[-1].seq


def _is_below(entry: Entry, place: Entry) -> bool:
    return f"{entry.scope}/".startswith(f"{place.scope}/")


def _call_key(attempt: Entry) -> str:
    """Return the key of the model call that an attempt belongs to: the attempt's key without a suffix such as `~2`."""
    above, slash, name = attempt.key.rpartition("/")
    return above + slash + name.partition("~")[0]
