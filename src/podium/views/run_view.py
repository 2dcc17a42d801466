"""Build a view of a run, with its tree of operations, from the timeline.

A view is built by applying the entries in order, so the same entries always result in the same view.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from ..core.open_requests import Answered, Asked, RunRequests
from ..values.agent import Team
from ..values.errors import Failure
from ..values.event import (
    KINDS,
    ActionBegan,
    ActionRefused,
    CallCut,
    CallFailed,
    Entry,
    Evaluated,
    Event,
    LimitReached,
    ModelReplied,
    Noticed,
    OperationEnded,
    OperationStarted,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
    RunPaused,
    RunStarted,
    SessionRevived,
    StatusReported,
    TeamPlanned,
    TextStreamed,
    TextSuperseded,
    ToolAnswered,
    ToolCalled,
    Trigger,
    TurnEnded,
    TurnResumed,
    TurnStarted,
    WorkerReturned,
)
from ..values.phase import Phase
from ..values.request import Outcome, Part, Request
from ..values.result import Result
from ..values.usage import NO_USAGE, Usage
from .phase import derive_phase

USAGE_KINDS = frozenset(KINDS[event] for event in (ModelReplied, CallFailed, CallCut))
"""The kinds of events that record the usage of the run's own model calls. Its workers' usage is recorded elsewhere."""


def usage_of_event(event: Event) -> Usage:
    """Return the usage of the model call that an event reports, or no usage for other events."""
    return event.usage if isinstance(event, ModelReplied | CallFailed | CallCut) else NO_USAGE


@dataclass(slots=True)
class OperationNode:
    """An operation in a run's tree."""

    path: str
    agent: str
    trigger: Trigger
    request: Request
    started: float
    ended: float | None = None
    outcome: Outcome | None = None
    texts: list[str] = field(default_factory=list)
    data: Any = None
    parts: tuple[Part, ...] = ()
    """The contributions of individual agents to the answer."""
    failure: Failure | None = None
    unproved: str = ""
    """Why the work of an operation that succeeded is unproved."""
    engine: str = ""
    activity: str = "starting"
    waits_until: float | None = None
    """When the limit resets, in seconds since the epoch, if the agent is waiting for a provider's limit to reset."""
    status: str = ""
    """The status that the agent last reported."""
    judged_text: str = ""
    """The text that the operation had produced when the team's work was last evaluated."""
    has_dispatched: bool = False
    own_usage: Usage = NO_USAGE
    children: list[OperationNode] = field(default_factory=list)
    team: Team | None = None
    """The team that the agent leads."""
    members: dict[str, str] = field(default_factory=dict)
    """The name of each team member's agent, keyed by member name, in team order."""

    @property
    def text(self) -> str:
        """The answer or, until the operation ends, the text that it has produced."""
        return "".join(self.texts)

    @property
    def draft(self) -> str:
        """The partial answer: the work that was last evaluated or, if none was evaluated, all text so far."""
        return self.judged_text or self.text

    @property
    def usage(self) -> Usage:
        """The usage of this operation and of everything below it."""
        return sum((child.usage for child in self.children), self.own_usage)

    def walk(self) -> Iterator[OperationNode]:
        """Yield this operation and everything below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(slots=True)
class RunView:
    """The state of a run, built by applying the entries of its timeline in order."""

    run: str = ""
    started: RunStarted | None = None
    started_at: float = 0.0
    at: float = 0.0
    seq: int = 0
    root: OperationNode | None = None
    ended: RunEnded | None = None
    last: Event | None = None
    """The last event or, once the run has ended, its end."""
    wakes_at: float | None = None
    """When the run continues, in seconds since the epoch, if it is waiting for a provider's limit to reset."""
    waits_for: str = ""
    """A description of the limit that must reset before the run continues."""
    notices: list[str] = field(default_factory=list)
    requests: RunRequests = field(default_factory=RunRequests)
    """The requests and questions to the user."""
    request_entries: list[Entry] = field(default_factory=list)
    """The requests and questions to the user and their answers, in order."""
    refusals: list[ActionRefused] = field(default_factory=list)
    """The actions that were refused."""
    is_aborted: bool = False
    """Whether the user denied a request and stopped the run with the same answer."""
    _nodes: dict[str, OperationNode] = field(default_factory=dict)
    _teams: dict[str, Team] = field(default_factory=dict)

    @classmethod
    def from_entries(cls, entries: Iterable[Entry]) -> RunView:
        """Build the view from these entries."""
        view = cls()
        for entry in entries:
            view.apply(entry)
        return view

    def apply(self, entry: Entry) -> None:
        """Apply the next entry."""
        self.at, self.seq = entry.at, entry.seq
        self.last = entry.event if self.ended is None else self.ended
        self._apply_wait(entry.event)
        match entry.event:
            case RunStarted() as event:
                self.run, self.started, self.started_at = entry.run, event, entry.at
                self._teams = {agent.name: agent.team for agent in event.agents if agent.team is not None}
            case RunEnded() as event:
                self._end_run(event)
            case Noticed() as event:
                self.notices.append(event.text)
            case OperationStarted() as event:
                self._start_node(entry, event)
            case PermissionAnswered() | QuestionAnswered() as event:
                asked = self.requests.unanswered.get(event.id)
                if asked is not None and asked.operation in self._nodes:
                    self._nodes[asked.operation].activity = "thinking"
                self.is_aborted |= isinstance(event, PermissionAnswered) and event.decision == "abort"
            case ActionRefused() as event:
                self.refusals.append(event)
            case _:
                if (node := self._nodes.get(entry.operation)) is not None:
                    _apply_to_node(node, entry)
        if isinstance(entry.event, Asked | Answered):
            self.request_entries.append(entry)
        self.requests.apply(entry)

    def _apply_wait(self, event: Event) -> None:
        """Update `wakes_at` and `waits_for` after an event. Every event except a notice ends an earlier wait."""
        match event:
            case LimitReached(until=until):
                self.wakes_at, self.waits_for = until, describe_limit(event)
            case RunPaused(until=until, reason=reason) if until:
                self.wakes_at, self.waits_for = until, reason
            case Noticed():
                pass
            case _:
                self.wakes_at, self.waits_for = None, ""

    def _start_node(self, entry: Entry, event: OperationStarted) -> None:
        node = OperationNode(entry.operation, event.agent, event.trigger, event.request, entry.at)
        self._nodes[node.path] = node
        parent, name = self.find_parent(node), node.agent
        if parent is None:
            self.root = node
        else:
            parent.children.append(node)
            name = parent.members.get(name, name) if node.trigger == "member" else name
        if name in self._teams:
            node.team = self._teams[name]
            node.members = map_member_names(node.team)

    def find_node(self, operation: str) -> OperationNode | None:
        """Return the operation with this path, or None."""
        return self._nodes.get(operation)

    def find_parent(self, node: OperationNode) -> OperationNode | None:
        """Return the operation that started this one, or None."""
        path = find_parent_path(node.path, self._nodes)
        return None if path is None else self._nodes[path]

    def _end_run(self, event: RunEnded) -> None:
        self.ended = event
        if self.root is not None:
            _end_subtree(self.root, self.at)

    @property
    def phase(self) -> Phase:
        """The run's phase if a process works on it. The timeline does not show whether one does."""
        return derive_phase(self.last, "held")

    @property
    def is_paused(self) -> bool:
        """Whether the run is paused, until somebody resumes it or until a limit resets."""
        return self.phase in ("paused", "waiting")

    @property
    def usage(self) -> Usage:
        """The usage of the whole run."""
        return NO_USAGE if self.root is None else self.root.usage

    def build_result(self) -> Result:
        """Return the run's result. If the run has not ended, the outcome is `paused` or `interrupted`."""
        outcome: Outcome = self.ended.outcome if self.ended else "paused" if self.is_paused else "interrupted"
        answered = self.root if self.root is not None and self.root.outcome == "succeeded" else None
        failure = self.ended.failure if self.ended else None
        parts = self.ended.parts if self.ended else ()
        return Result(
            run_id=self.run,
            outcome=outcome,
            succeeded=outcome == "succeeded",
            text=answered.text if answered else "",
            data=answered.data if answered else None,
            parts=parts or (answered.parts if answered else ()),
            usage=structs.replace(self.usage, seconds=self.at - self.started_at),
            error=None if failure is None else str(failure),
            unproved=(answered.unproved or None) if answered and outcome == "succeeded" else None,
        )

    def collect_parts(self) -> tuple[Part, ...]:
        """Return the partial results of a run without an answer: finished parts, and the text of unfinished ones.

        A team's parts are in member order: for each member, its last finished part and any unfinished part after it.
        """
        return () if self.root is None else tuple(_iter_parts(self.root))


def map_member_names(team: Team) -> dict[str, str]:
    """Return the name of each team member's agent, keyed by member name, in team order.

    If several members have the same name, a number is appended, as in `tester-2`.
    """
    names: dict[str, str] = {}
    for member in team.members:
        wanted = name = member.name or member.agent
        number = 2
        while name in names:
            name, number = f"{wanted}-{number}", number + 1
        names[name] = member.agent
    return names


def find_parent_path(path: str, known: Container[str]) -> str | None:
    """Return the nearest ancestor of `path` that is in `known`, or None if no ancestor is."""
    while path := path.rpartition("/")[0]:
        if path in known:
            return path
    return None


def describe_limit(event: LimitReached) -> str:
    """Describe the limit that an agent has reached, such as `the limit of openai:gpt-5-mini`."""
    return f"the limit of {event.provider}:{event.model}" if event.provider else f"the limit of {event.model}"


def _apply_to_node(node: OperationNode, entry: Entry) -> None:
    """Apply an entry that concerns a single operation."""
    match entry.event:
        case OperationEnded() as event:
            node.outcome, node.failure, node.data, node.parts = event.outcome, event.failure, event.data, event.parts
            node.unproved = event.unproved
            node.texts, node.judged_text = ([event.text], "") if event.text else (node.texts, node.judged_text)
            _end_subtree(node, entry.at)
        case LimitReached() as event:
            node.activity, node.waits_until = f"waiting for {describe_limit(event)}", event.until
        case TurnStarted() as event:
            node.engine, node.texts, node.activity = event.engine, [], "thinking"
        case TurnResumed() | TextSuperseded():
            node.texts = []
        case SessionRevived():
            node.texts, node.activity = [], "starting again"
        case TextStreamed() as event:
            node.texts.append(event.text)
            node.activity = "answering"
        case TurnEnded() as event:
            node.texts = [event.text] if event.text else node.texts
            node.activity = "done" if event.failure is None else "failed"
        case ModelReplied() | CallFailed() | CallCut() | WorkerReturned() as event:
            node.own_usage += event.usage
            if node.waits_until is not None:
                node.activity, node.waits_until = "thinking", None
        case ToolCalled() as event:
            node.activity = f"using {event.action.tool}"
        case PermissionAsked() as event:
            node.activity = f"waiting for permission to use {event.action.tool}"
        case QuestionAsked():
            node.activity = "waiting for an answer"
        case ActionBegan() as event:
            node.activity = f"using {event.action.tool}"
        case TeamPlanned() as event:
            node.has_dispatched = bool(event.assignments)
        case Evaluated():
            node.judged_text = node.text if node.has_dispatched else node.judged_text
        case StatusReported() as event:
            node.status = event.text
        case ToolAnswered():
            node.activity = "thinking"


def _end_subtree(node: OperationNode, at: float) -> None:
    """Mark the unfinished operations of a subtree as ended. Those without an outcome count as cancelled."""
    for below in node.walk():
        if below.ended is None:
            below.ended = at
            below.outcome = below.outcome or "cancelled"
            below.activity = below.outcome


def _iter_parts(node: OperationNode) -> Iterator[Part]:
    if node.outcome == "succeeded":
        yield Part(agent=node.agent, outcome="succeeded", text=node.text)
        return
    for child in _select_reporting_children(node):
        if child.trigger != "vote":
            yield from _iter_parts(child)
    is_unfinished = not node.children and node.trigger != "request"
    if node.draft or node.failure is not None or is_unfinished:
        yield Part(agent=node.agent, outcome=node.outcome or "cancelled", text=node.draft, failure=node.failure)


def _select_reporting_children(node: OperationNode) -> list[OperationNode]:
    """Return the child operations whose parts are reported.

    For a team, the operations that do not belong to a member come first. They are followed by each member's last
    successful operation and, if the member's last operation did not succeed, that operation too. The operations of an
    evaluator that is not a member are left out.
    """
    if node.team is None:
        return node.children
    chosen = [child for child in node.children if child.trigger != "member"]
    good: dict[str, OperationNode] = {}
    last: dict[str, OperationNode] = {}
    for child in node.children:
        if child.trigger == "member":
            last[child.agent] = child
            if child.outcome == "succeeded":
                good[child.agent] = child
    for name in node.members:
        chosen += [good[name]] if name in good else []
        chosen += [last[name]] if name in last and last[name] is not good.get(name) else []
    return chosen
