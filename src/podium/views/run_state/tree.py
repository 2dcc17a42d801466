"""Build a view of a run, with its tree of operations, from the timeline.

A view is built by applying the entries in order, so the same entries always result in the same view.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field, structs

from ...core.edits import EDITS, Edits, Place
from ...core.open_requests import RunRequests
from ...values.agent import Budget, Team, override_limits
from ...values.errors import Failure
from ...values.event import (
    KINDS,
    ActionBegan,
    ActionRefused,
    BudgetChanged,
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
    StopAsked,
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
from ...values.phase import Lease, Phase
from ...values.request import Outcome, Part, Request, Result
from ...values.usage import NO_USAGE, Usage
from ..run_phase import derive_phase
from . import RunState


class OperationNode(Struct, dict=True):
    """An operation in a run's tree. `children`, which are not stored, are the operations that it started."""

    path: str
    agent: str
    trigger: Trigger
    request: Request
    started: float
    parent: str | None = None
    """The path of the operation that started this one."""
    ended: float | None = None
    outcome: Outcome | None = None
    text: str = ""
    """The answer or, until the operation ends, the text that it has produced."""
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
    team: Team | None = None
    """The team that the agent leads."""
    members: dict[str, str] = {}
    """The name of each team member's agent, keyed by member name, in team order."""

    def __post_init__(self) -> None:
        self.children: list[OperationNode] = []

    @property
    def place(self) -> Place:
        """The place in the state of a run."""
        return ("view", "nodes", self.path)

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


class RunBudget(RunState):
    """The limits of a whole run."""

    PLACE = ("view", "budget")
    KINDS = (KINDS[RunStarted], KINDS[BudgetChanged])

    current: Budget | None = None

    def apply(self, entry: Entry, edits: Edits = EDITS) -> None:
        """Apply the next entry."""
        match entry.event:
            case RunStarted(settings=settings):
                edits.set(self, current=_read_budget(settings))
            case BudgetChanged(budget=limits):
                edits.set(self, current=override_limits(self.current, limits))


class RunView(RunState):
    """The state of a run and of its operations, built by applying the entries of its timeline in order."""

    PLACE = ("view",)

    run: str = ""
    started: RunStarted | None = None
    started_at: float = 0.0
    at: float = 0.0
    seq: int = 0
    first: str | None = None
    """The path of the first operation."""
    ended: RunEnded | None = None
    paused: RunPaused | None = None
    """The last event, if the run paused with it."""
    is_untouched: bool = True
    """Whether nothing but notices followed the start of the run, or the last event is a notice."""
    wakes_at: float | None = None
    """When the run continues, in seconds since the epoch, if it is waiting for a provider's limit to reset."""
    waits_for: str = ""
    """A description of the limit that must reset before the run continues."""
    notices: list[str] = field(default_factory=list)
    requests: RunRequests = field(default_factory=RunRequests)
    """The requests and questions to the user."""
    refusals: list[ActionRefused] = field(default_factory=list)
    """The actions that were refused."""
    is_aborted: bool = False
    """Whether the user denied a request and stopped the run with the same answer."""
    stopped_by: str = ""
    """Who asked first to stop the run."""
    budget: RunBudget = field(default_factory=RunBudget)
    nodes: dict[str, OperationNode] = field(default_factory=dict)
    """The operations, keyed by path, in the order in which they started."""

    def __post_init__(self) -> None:
        for node in self.nodes.values():
            if node.parent is not None:
                self.nodes[node.parent].children.append(node)

    def apply(self, entry: Entry, edits: Edits = EDITS) -> None:
        """Apply the next entry."""
        event = entry.event
        edits.set(self, at=entry.at, seq=entry.seq)
        self._apply_standing(event, edits)
        match event:
            case RunStarted():
                edits.set(self, run=entry.run, started=event, started_at=entry.at)
                self.budget.apply(entry, edits)
            case RunEnded():
                edits.set(self, ended=event)
                if self.root is not None:
                    _end_subtree(self.root, entry.at, edits)
            case Noticed(text=text):
                edits.add(self, "notices", text)
            case StopAsked(by=by):
                edits.set(self, stopped_by=self.stopped_by or by)
            case BudgetChanged():
                self.budget.apply(entry, edits)
            case OperationStarted():
                self._start_node(entry, event, edits)
            case PermissionAnswered() | QuestionAnswered():
                asked = self.requests.unanswered.get(event.id)
                if asked is not None and asked.operation in self.nodes:
                    edits.set(self.nodes[asked.operation], activity="thinking")
                if isinstance(event, PermissionAnswered) and event.decision == "abort":
                    edits.set(self, is_aborted=True)
            case ActionRefused():
                edits.add(self, "refusals", event)
            case _:
                if (node := self.nodes.get(entry.operation)) is not None:
                    _apply_to_node(node, entry, edits)
        self.requests.apply(entry, edits)

    def _apply_standing(self, event: Event, edits: Edits) -> None:
        """Update what the last event says about where the run stands, and for which limit it waits.

        Every event except a notice ends an earlier wait.
        """
        is_untouched = isinstance(event, RunStarted | Noticed)
        paused = event if isinstance(event, RunPaused) else None
        if is_untouched != self.is_untouched or paused is not self.paused:
            edits.set(self, is_untouched=is_untouched, paused=paused)
        match event:
            case LimitReached(until=until):
                edits.set(self, wakes_at=until, waits_for=describe_limit(event))
            case RunPaused(until=until, reason=reason) if until:
                edits.set(self, wakes_at=until, waits_for=reason)
            case Noticed():
                pass
            case _ if self.wakes_at is not None:
                edits.set(self, wakes_at=None, waits_for="")

    def _start_node(self, entry: Entry, event: OperationStarted, edits: Edits) -> None:
        path, name = entry.operation, event.agent
        parent = _find_parent_path(path, self.nodes)
        if parent is None:
            edits.set(self, first=path)
        elif event.trigger == "member":
            name = self.nodes[parent].members.get(name, name)
        team = self._find_team(name)
        node = OperationNode(
            path=path,
            agent=event.agent,
            trigger=event.trigger,
            request=event.request,
            started=entry.at,
            parent=parent,
            team=team,
            members={} if team is None else map_member_names(team),
        )
        edits.put(self, "nodes", path, node)
        if parent is not None:
            self.nodes[parent].children.append(node)

    def _find_team(self, agent: str) -> Team | None:
        agents = () if self.started is None else self.started.agents
        return next((one.team for one in agents if one.name == agent and one.team is not None), None)

    @property
    def root(self) -> OperationNode | None:
        """The first operation, or None until it has started."""
        return None if self.first is None else self.nodes[self.first]

    def find_node(self, operation: str) -> OperationNode | None:
        """Return the operation with this path, or None."""
        return self.nodes.get(operation)

    def find_parent(self, node: OperationNode) -> OperationNode | None:
        """Return the operation that started this one, or None."""
        return None if node.parent is None else self.nodes[node.parent]

    @property
    def phase(self) -> Phase:
        """The run's phase if a process works on it. The timeline does not show whether one does."""
        return self.derive_phase("held")

    def derive_phase(self, lease: Lease, *, is_worker: bool = False) -> Phase:
        """Return the run's phase. `lease` says whether a process works on it; see `phase.derive_phase`."""
        last = self.ended or self.paused or (self.started if self.is_untouched else None)
        return derive_phase(last, lease, is_worker=is_worker)

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


def _read_budget(settings: Mapping[str, Any]) -> Budget | None:
    """Return the limits of a run in the settings that it started with."""
    try:
        return msgspec.convert(settings.get("budget"), Budget | None)
    except msgspec.ValidationError:  # a host of a fleet wrote it, or a newer release
        return None


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


def _find_parent_path(path: str, known: Container[str]) -> str | None:
    """Return the nearest ancestor of `path` that is in `known`, or None if no ancestor is."""
    while path := path.rpartition("/")[0]:
        if path in known:
            return path
    return None


def describe_limit(event: LimitReached) -> str:
    """Describe the limit that an agent has reached, such as `the limit of openai:gpt-5-mini`."""
    return f"the limit of {event.provider}:{event.model}" if event.provider else f"the limit of {event.model}"


def _apply_to_node(node: OperationNode, entry: Entry, edits: Edits) -> None:
    """Apply an entry that concerns a single operation."""
    match entry.event:
        case TextStreamed(text=text):
            edits.add_text(node, "text", text)
            if node.activity != "answering":
                edits.set(node, activity="answering")
        case OperationEnded() as event:
            edits.set(
                node,
                outcome=event.outcome,
                failure=event.failure,
                data=event.data,
                parts=event.parts,
                unproved=event.unproved,
                text=event.text or node.text,
                judged_text="" if event.text else node.judged_text,
            )
            _end_subtree(node, entry.at, edits)
        case LimitReached() as event:
            edits.set(node, activity=f"waiting for {describe_limit(event)}", waits_until=event.until)
        case TurnStarted() as event:
            edits.set(node, engine=event.engine, text="", activity="thinking")
        case TurnResumed() | TextSuperseded():
            edits.set(node, text="")
        case SessionRevived():
            edits.set(node, text="", activity="starting again")
        case TurnEnded() as event:
            edits.set(node, text=event.text or node.text, activity="done" if event.failure is None else "failed")
        case ModelReplied() | CallFailed() | CallCut() | WorkerReturned() as event:
            edits.set(node, own_usage=node.own_usage + event.usage)
            if node.waits_until is not None:
                edits.set(node, activity="thinking", waits_until=None)
        case ToolCalled(action=action) | ActionBegan(action=action):
            edits.set(node, activity=f"using {action.tool}")
        case PermissionAsked(action=action):
            edits.set(node, activity=f"waiting for permission to use {action.tool}")
        case QuestionAsked():
            edits.set(node, activity="waiting for an answer")
        case TeamPlanned() as event:
            edits.set(node, has_dispatched=bool(event.assignments))
        case Evaluated() if node.has_dispatched:
            edits.set(node, judged_text=node.text)
        case StatusReported(text=text):
            edits.set(node, status=text)
        case ToolAnswered():
            edits.set(node, activity="thinking")


def _end_subtree(node: OperationNode, at: float, edits: Edits) -> None:
    """Mark the unfinished operations of a subtree as ended. Those without an outcome count as cancelled."""
    for below in node.walk():
        if below.ended is None:
            outcome: Outcome = below.outcome or "cancelled"
            edits.set(below, ended=at, outcome=outcome, activity=outcome)


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
