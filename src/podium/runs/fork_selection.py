"""Select the entries that a fork shares with the original run.

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
from ..patterns.in_worker import BRANCH_PREFIX
from ..values.event import (
    KINDS,
    ActionBegan,
    ActionRefused,
    Entry,
    OperationEnded,
    PauseAsked,
    PermissionAnswered,
    PermissionAsked,
    PlanCommitted,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
    RunPaused,
    RunResumed,
    RunStarted,
    StopAsked,
    ToolAnswered,
    TurnEnded,
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
