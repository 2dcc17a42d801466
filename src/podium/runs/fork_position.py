"""Find where to fork a run, and which of its entries the fork shares.

A run is forked at a snapshot, at an entry, or just before a decision or a failure.

A position is a sequence number. The fork shares the entries up to and including this number.

A fork continues from a copy of the entries up to a position, like a run that is resumed after its process died: a
step whose outcome is among these entries is not executed again. Approvals of later actions are not shared. Work that
was in progress starts again: actions that had not ended, requests and questions whose answers were not used, and
workers that had not reported a result. The functions here do not change any run.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from msgspec import structs

from ..core.journal_rows import compute_digest
from ..patterns.worker_run import BRANCH_PREFIX
from ..values.errors import Failure, FailureKind, Mistake
from ..values.event import (
    KINDS,
    ActionBegan,
    ActionRefused,
    CallFailed,
    DecisionCommitted,
    DecisionProposed,
    Entry,
    ModelReplied,
    OperationEnded,
    OperationStarted,
    PauseAsked,
    PermissionAnswered,
    PermissionAsked,
    PlanCommitted,
    PlanStepFailed,
    PlanStepStarted,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
    RunPaused,
    RunResumed,
    RunStarted,
    SnapshotTaken,
    StopAsked,
    ToolAnswered,
    TurnEnded,
    VoteClosed,
    WorkerReturned,
    WorkerSent,
)
from ..values.operation_path import parse_agent_name

NOT_SHARED = (RunStarted, RunEnded, RunPaused, RunResumed, PauseAsked, StopAsked)
"""Events that concern only the run itself and the processes that worked on it."""
PLAN_NOT_APPROVED = "the fork does not inherit the approval of the plan, so the plan's allow rules do not apply"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkedEntries:
    """The entries that a fork shares, in order, and notices about entries that were omitted or changed."""

    kept: tuple[Entry, ...]
    notices: tuple[str, ...] = ()


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


def select_entries(entries: Sequence[Entry], at: int, *, run: str) -> ForkedEntries:
    """Return the entries that the fork `run` shares with its original run, up to the position `at`.

    Events that start, pause, resume or end the run are not shared. The returned entries have the original run and
    sequence number.
    """
    shared = [entry for entry in entries if entry.seq <= at and not isinstance(entry.event, NOT_SHARED)]
    ended = {entry.key for entry in shared if isinstance(entry.event, OperationEnded | TurnEnded)}
    open_steps = _find_open_steps(shared, ended)
    workers = {entry.seq: _send_again(entry, ended, run) for entry in _iter_unreturned_workers(shared)}
    # A tool call that starts a worker returns at once. The fork leaves out its result, so that the tool is called again
    # and starts the worker again.
    called_again = {
        f"{entry.scope.rpartition('/')[0]}/{KINDS[ToolAnswered]}#1" for entry in workers.values() if entry is not None
    }
    kept: list[Entry] = []
    notices = [*_describe_open_actions(open_steps)]
    for entry in shared:
        if entry.seq in workers:
            again = workers[entry.seq]
            kept += [] if again is None else [again]
            notices.append(_describe_worker(entry, again))
        elif entry.seq not in open_steps and entry.key not in called_again:
            kept.append(_without_approval(entry))
    if any(isinstance(entry.event, PlanCommitted) and entry.event.is_approved_by_person for entry in shared):
        notices.append(PLAN_NOT_APPROVED)
    return ForkedEntries(kept=tuple(kept), notices=tuple(notices))


def _has_ended(scope: str, ended: Container[str]) -> bool:
    """Return whether a scope is in a turn or operation that has ended. Nothing in such a scope is repeated."""
    while scope:
        if scope in ended:
            return True
        scope = scope.rpartition("/")[0]
    return False


# Steps that were still open at the fork point
def _find_open_steps(shared: Sequence[Entry], ended: Container[str]) -> dict[int, Entry]:
    """Return the requests, questions, answers and actions of steps that had not ended, keyed by sequence number."""
    keys = {entry.key: entry.seq for entry in shared if entry.key}
    answered_at = {entry.event.id: entry.seq for entry in shared if isinstance(entry.event, QuestionAnswered)}
    open_ids: set[str] = set()
    found: dict[int, Entry] = {}
    for entry in shared:
        match entry.event:
            case QuestionAsked(kind="plan" | "decision" | "review", id=id):
                # The question comes from an execution pattern. The pattern has used the answer if, after the answer,
                # it recorded a step in the scope that contains the question.
                beside, answer = f"{entry.scope.rpartition('/')[0]}/", answered_at.get(id)
                is_open = answer is None or not any(seq > answer for key, seq in keys.items() if key.startswith(beside))
            case PermissionAsked() | QuestionAsked() | ActionBegan() | ActionRefused():
                is_open = entry.scope not in keys and f"{entry.scope}/{KINDS[ToolAnswered]}#1" not in keys
            case PermissionAnswered(id=id) | QuestionAnswered(id=id):
                is_open = id in open_ids
            case _:
                continue
        if is_open and not _has_ended(entry.scope, ended):
            found[entry.seq] = entry
            if isinstance(entry.event, PermissionAsked | QuestionAsked):
                open_ids.add(entry.event.id)
    return found


def _describe_open_actions(open_steps: dict[int, Entry]) -> Iterator[str]:
    for entry in open_steps.values():
        if isinstance(entry.event, ActionBegan):
            agent, tool = parse_agent_name(entry.operation), entry.event.action.tool
            yield f"{agent}: {tool} had not finished at the fork point, so the fork calls it again"


def _without_approval(entry: Entry) -> Entry:
    """Return the entry, changed so that it does not approve any later actions."""
    match entry.event:
        case PermissionAnswered(decision="run" | "always") as event:
            return structs.replace(entry, event=structs.replace(event, decision="once", rule=""))
        case PlanCommitted(is_approved_by_person=True) as event:
            return structs.replace(entry, event=structs.replace(event, is_approved_by_person=False))
    return entry


# Workers that had not reported a result by the fork point
def _iter_unreturned_workers(shared: Sequence[Entry]) -> Iterator[Entry]:
    """Yield the WorkerSent entries of workers that have no WorkerReturned entry."""
    returned = {entry.event.run for entry in shared if isinstance(entry.event, WorkerReturned)}
    yield from (entry for entry in shared if isinstance(entry.event, WorkerSent) and entry.event.run not in returned)


def _send_again(entry: Entry, ended: Container[str], run: str) -> Entry | None:
    """Return a copy of a WorkerSent entry that gives the worker a new run and branch in the fork `run`.

    Return None if the operation that started the worker has ended.
    """
    if _has_ended(entry.operation, ended):
        return None
    sent = entry.event
    assert isinstance(sent, WorkerSent)
    wanted = sent.asked or sent.branch
    branch = rename_branch(wanted, entry.run, run)
    asked = "" if branch.startswith(f"{BRANCH_PREFIX}/{run}/") else wanted
    again = structs.replace(sent, run=compute_digest(run, sent.run)[:12], branch=branch, asked=asked)
    return structs.replace(entry, event=again)


def rename_branch(branch: str, source: str, run: str) -> str:
    """Return the name that a worker's branch in the run `source` gets in the fork `run`."""
    own = f"{BRANCH_PREFIX}/{source}/"
    if branch.startswith(own):
        return f"{BRANCH_PREFIX}/{run}/{branch.removeprefix(own)}"
    return f"{branch}-{run[:4]}" if branch else ""


def _describe_worker(entry: Entry, again: Entry | None) -> str:
    sent = entry.event
    assert isinstance(sent, WorkerSent)
    what = f"the worker on {sent.branch} (run {sent.run}) had not reported a result by the fork point"
    if again is None:
        agent = parse_agent_name(entry.operation)
        return f"{what}, but the fork does not start it again, because {agent} had already ended without it"
    assert isinstance(again.event, WorkerSent)
    return f"{what}, so the fork starts it again on {again.event.branch} (run {again.event.run})"
