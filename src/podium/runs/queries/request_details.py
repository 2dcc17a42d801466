"""Describe the requests that are waiting for a person as all user interfaces show them, and watch for new ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, Literal, Protocol, TypeVar

from anyio import sleep, to_thread, wait_readable
from msgspec import Struct, structs

from ...core.open_requests import describe_closing
from ...policy.rule_examples import find_rule_examples
from ...store.reader import RunSummary, StoreReader
from ...store.request_list import OpenRequest, list_open_requests
from ...store.store_clients import register_client
from ...store.wakeup import open_wakeup, send_wakeup
from ...store.worker_index import WorkerIndex
from ...values.action import RiskKind
from ...values.column import DocumentPart
from ...values.event import Entry, PermissionAsked, QuestionAsked, QuestionKind, RunStarted
from ...values.operation_path import parse_agent_name, parse_plan_step
from ...values.phase import Phase
from ...values.store_address import StoreAddress
from ...views.request_text import (
    SANDBOXES,
    escape_hidden_text,
    escape_in_line,
    format_request_lines,
    format_risk,
)

LOOK_SECONDS = 0.5
"""The minimum time between two scans of all runs, however often workers write to the store."""


class RequestListener(Protocol):
    """Receives requests, and is notified when a request no longer needs an answer."""

    def handle_entry(self, entry: Entry, worker: str = "") -> None:
        """Handle an entry with a request or question for a person. `worker` is the name of the worker that asked."""
        ...

    def withdraw_request(self, id: str, how: str) -> None:
        """Stop asking about a request that has been closed.

        `how` is the end of a sentence that says how it was closed, such as `timed out` or `was answered by Ada`.
        """
        ...


class RequestListeners:
    """Passes requests on to all its listeners."""

    def __init__(self, *listeners: RequestListener) -> None:
        self._listeners = listeners

    def handle_entry(self, entry: Entry, worker: str = "") -> None:
        for listener in self._listeners:
            listener.handle_entry(entry, worker)

    def withdraw_request(self, id: str, by: str) -> None:
        for listener in self._listeners:
            listener.withdraw_request(id, by)


class WorkerRequestWatcher:
    """Passes the requests from all workers of a store, or from one run's workers, to a listener."""

    def __init__(self, store: StoreAddress, listener: RequestListener, *, sent_by: str = "") -> None:
        self._store = store
        self._sent_by = sent_by
        self._listener = listener
        self._open: dict[str, str] = {}
        """The requests that were passed to the listener and not withdrawn, each with its run."""

    async def watch_requests(self) -> None:
        """Scan for requests at every wakeup, until cancelled.

        This process counts as a client that can answer requests only if it watches all workers.
        """
        wakeup = open_wakeup(self._store, "follower")
        try:
            send_wakeup(self._store, "owner")
            with nullcontext() if self._sent_by else register_client(self._store):
                while True:
                    wakeup.drain()
                    if self._store.exists():
                        asked = await to_thread.run_sync(self._list_worker_requests)
                        self._forward_changes(
                            asked, await to_thread.run_sync(self._describe_closings, self._open.keys() - asked.keys())
                        )
                    await sleep(LOOK_SECONDS)
                    await wait_readable(wakeup)
        finally:
            wakeup.close()

    def _list_worker_requests(self) -> dict[str, OpenRequest]:
        """Return the workers' open requests, keyed by id."""
        workers = {row.run for row in WorkerIndex(self._store).list_open()}
        if not workers:
            return {}
        asked = [one for one in list_open_requests(self._store) if one.summary.id in workers]
        if self._sent_by:
            with StoreReader(self._store) as reader:
                asked = [one for one in asked if self._sent_by in _walk_parent_runs(reader, one.summary)]
        return {one.asked.id: one for one in asked}

    def _describe_closings(self, gone: set[str]) -> dict[str, str]:
        """Describe how each of these requests was closed.

        If the answer to a request is not on the timeline yet, the request is omitted, and a later scan reports it.
        """
        closings: dict[str, str] = {}
        with StoreReader(self._store) as reader:
            for run in {self._open[id] for id in gone}:
                requests = reader.read_requests(run)
                still_open = requests.list_open(now=time.time())
                for id in gone:
                    if self._open[id] == run and id not in still_open:
                        closings[id] = describe_closing(requests.answers.get(id))
        return closings

    def _forward_changes(self, asked: dict[str, OpenRequest], closed: dict[str, str]) -> None:
        for id, how in closed.items():
            self._listener.withdraw_request(id, how)
            del self._open[id]
        for id, one in asked.items():
            if id not in self._open:
                self._open[id] = one.entry.run
                self._listener.handle_entry(one.entry, one.worker_name)


RequestKind = Literal["permission"] | QuestionKind
Details = TypeVar("Details", bound="RequestDetails")


class WaitingRequest(Struct, frozen=True, kw_only=True):
    """A request in a list of requests."""

    id: str
    run: str
    kind: RequestKind
    asked_at: float
    text: str


class RequestDetails(DocumentPart, frozen=True, kw_only=True, tag_field="kind"):
    """What a person needs to decide on any request. Hidden characters in agents' text are escaped.

    `step` is the plan step that the request belongs to, and `plan_run` is the run with the plan; both are empty if
    there is none.
    """

    id: str
    run: str
    asked_at: float
    text: str
    state: Phase
    agent: str
    operation: str
    worker: str
    step: str
    plan_run: str
    goal: str
    seq: int
    shown: str


class QuestionDetails(RequestDetails, frozen=True, kw_only=True, tag="question"):
    """An agent's question."""

    question: str
    choices: list[str]
    digest: str


class PlanDetails(QuestionDetails, frozen=True, kw_only=True, tag="plan"):
    """A plan to approve."""


class DecisionDetails(QuestionDetails, frozen=True, kw_only=True, tag="decision"):
    """A decision to approve."""


class ReviewDetails(QuestionDetails, frozen=True, kw_only=True, tag="review"):
    """A review to approve."""


class ShownRisk(DocumentPart, frozen=True, kw_only=True):
    """A risk of an action, as a sentence."""

    kind: RiskKind
    text: str


class PermissionDetails(RequestDetails, frozen=True, kw_only=True, tag="permission"):
    """An action that needs permission. `always` is the rule that would allow it from now on, with examples."""

    tool: str
    lines: list[str]
    directory: str
    sandbox: str
    reason: str
    agent_reason: str
    risks: list[ShownRisk]
    denied: list[str]
    always: str
    always_covers: list[str]
    always_does_not_cover: list[str]
    action_id: str
    same: str


AnyRequestDetails = PermissionDetails | QuestionDetails | PlanDetails | DecisionDetails | ReviewDetails
QUESTION_TYPES: dict[QuestionKind, type[QuestionDetails]] = {
    "question": QuestionDetails,
    "plan": PlanDetails,
    "decision": DecisionDetails,
    "review": ReviewDetails,
}


def list_request(one: OpenRequest) -> WaitingRequest:
    """Return a request as it is listed."""
    id, run, kind, text = one.asked.id, one.summary.id, describe_kind(one), describe_request(one)
    return WaitingRequest(id=id, run=run, kind=kind, asked_at=one.entry.at, text=text)


def describe_in_full(one: OpenRequest) -> AnyRequestDetails:
    """Return everything that a person needs to decide on a request."""
    asked, started, operation = one.asked, one.summary.started, one.entry.operation
    step, plan_run = _find_step(operation, one.summary.id, started)
    shared = {
        "run": one.summary.id,
        "asked_at": one.entry.at,
        "text": describe_request(one),
        "state": one.summary.phase,
        "agent": escape_in_line(parse_agent_name(operation)),
        "operation": escape_in_line(operation),
        "worker": one.worker_name,
        "step": escape_in_line(step),
        "plan_run": plan_run,
        "goal": started.request.text,
        "seq": one.entry.seq,
    }
    if isinstance(asked, QuestionAsked):
        return _escape(QUESTION_TYPES[asked.kind].of(asked, question=asked.text, **shared))
    action = asked.action
    covered, not_covered = find_rule_examples(asked.always, action) if asked.always else ((), ())
    details = PermissionDetails.of(
        asked,
        tool=escape_in_line(action.tool),
        lines=format_request_lines(asked),
        directory=action.directory,
        sandbox=SANDBOXES.get(action.sandbox, action.sandbox),
        risks=[ShownRisk(kind=fact.kind, text=format_risk(fact)) for fact in asked.risks],
        always_covers=covered,
        always_does_not_cover=not_covered,
        action_id=action.id,
        same=action.effect_hash,
        **shared,
    )
    return _escape(details)


def _escape(details: Details) -> Details:
    """Escape the hidden characters in all texts."""
    return structs.replace(details, **{name: _escape_text(value) for name, value in structs.asdict(details).items()})


def _escape_text(value: Any) -> Any:
    if isinstance(value, str):
        return escape_hidden_text(value)
    return [_escape_text(one) for one in value] if isinstance(value, list | tuple) else value


def _find_step(operation: str, run: str, started: RunStarted) -> tuple[str, str]:
    """Return the plan step that an operation belongs to, and the run with the plan.

    The plan of a step that a worker carries out is on the timeline of the run that started the worker.
    """
    if step := parse_plan_step(operation):
        return step, run
    task = started.errand
    step = "" if task is None else parse_plan_step(task.operation)
    return step, task.parent if task is not None and step else ""


def describe_kind(one: OpenRequest) -> RequestKind:
    """Return the kind of a request, such as `permission`."""
    return "permission" if isinstance(one.asked, PermissionAsked) else one.asked.kind


def describe_request(one: OpenRequest) -> str:
    """Return what a request is about, in one line."""
    if not isinstance(one.asked, PermissionAsked):
        return escape_hidden_text(" ".join(one.asked.text.split()))
    action = one.asked.action
    subject = next((action.arguments[key] for key in ("command", "path", "url") if key in action.arguments), "")
    return escape_hidden_text(" ".join(f"{action.tool} {subject}".split()))


def _walk_parent_runs(reader: StoreReader, summary: RunSummary) -> Iterator[str]:
    """Yield the run that started this worker, then the run that started that run, and so on."""
    while (task := summary.started.errand) and task.parent:
        yield task.parent
        summary = reader.read_summary(task.parent)
