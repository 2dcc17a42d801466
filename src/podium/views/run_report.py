"""Build a report of a run's results, at any time and in any state of the run.

Like the run view, the report is computed from the timeline. The command line and the web interface each format it in
their own way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from ..values.agent import Budget
from ..values.event import (
    AdjustmentProposed,
    Broadcast,
    Checked,
    Entry,
    Evaluated,
    PermissionAsked,
    QuestionAsked,
    ReflectEnd,
    Trigger,
    Voted,
)
from ..values.request import Outcome
from ..values.usage import NO_USAGE, Usage
from .run_state.results import RunResults
from .run_state.tree import OperationNode

State = Outcome | Literal["unfinished", "not_begun"]


class ReportPart(Struct, frozen=True, kw_only=True):
    """The result of one operation.

    `number` is the iteration of a loop or the round of a discussion, otherwise 0. `depth` is the number
    of reported operations above this one. `usage` includes the operations below it.
    """

    agent: str
    state: State
    operation: str = ""
    trigger: Trigger = "member"
    number: int = 0
    depth: int = 0
    seconds: float = 0.0
    usage: Usage = NO_USAGE
    text: str = ""
    why: str = ""
    """Why the part failed, if it did."""


class ReflectionReport(Struct, frozen=True, kw_only=True):
    """The results of a loop of planning, work and evaluation. `end` is None while the loop may continue."""

    lead: str
    operation: str
    goal: str
    end: ReflectEnd | None
    iterations: int
    most: int
    seconds: float
    score: float
    evaluations: tuple[Evaluated, ...]
    checks: tuple[Checked, ...]
    proposals: tuple[AdjustmentProposed, ...]
    """The proposed changes that were not applied."""


class DiscussionReport(Struct, frozen=True, kw_only=True):
    """The messages and votes of a discussion. `end` is None while the discussion may continue."""

    lead: str
    operation: str
    end: str | None
    rounds: int
    said: tuple[Broadcast, ...]
    votes: tuple[Voted, ...]
    """The last vote of each member."""


class OpenPoint(Struct, frozen=True, kw_only=True):
    """An unanswered request or question, an undelivered message, or a rejected claim of completion."""

    kind: Literal["request", "question", "message", "claim"]
    agent: str
    text: str
    id: str = ""


class ReportedFile(Struct, frozen=True, kw_only=True):
    """A file that agents changed with file tools. Changes made by commands are not tracked."""

    path: str
    agents: tuple[str, ...]


DEFAULT_MAX_ITERATIONS = 5
"""The maximum number of iterations if neither the event `ReflectEnded` nor the team's options specify one."""
_PHASES: dict[Trigger, int] = {"advice": 0, "handoff": 2}
"""The order of an agent's children: advice comes before its own work, and a handoff after it."""


class Report(Struct, frozen=True, kw_only=True):
    """The results of a run. If `answer` is None, `why` is the reason, and `draft` is the partial answer."""

    run: str
    agent: str
    request: str
    state: State
    answer: str | None
    data: Any
    why: str
    draft: str
    started_at: float
    seconds: float
    usage: Usage
    budget: Budget | None
    """The current limits of the whole run."""
    parts: tuple[ReportPart, ...]
    reflections: tuple[ReflectionReport, ...]
    discussions: tuple[DiscussionReport, ...]
    open_points: tuple[OpenPoint, ...]
    changed_files: tuple[ReportedFile, ...]

    @property
    def has_results(self) -> bool:
        """Whether there is an answer, a partial answer, or a failure to report."""
        return bool(
            self.answer is not None
            or self.draft.strip()
            or any(part.text.strip() or part.why for part in self.parts)
            or self.state in ("failed", "timed_out")
        )

    @classmethod
    def from_entries(cls, entries: Iterable[Entry]) -> Report:
        """Build the report from these entries, which must start with the run's first entry."""
        return build_report(RunResults.from_entries(entries))


def build_report(state: RunResults) -> Report:
    """Return the report after the last applied entry."""
    view, started, root = state.view, state.view.started, state.view.root
    assert started is not None, "the first entry of a run must be RunStarted"
    answered = root is not None and root.outcome == "succeeded"
    outcome: State = "paused" if view.is_paused else "unfinished"
    return Report(
        run=view.run,
        agent=started.agent,
        request=started.request.text,
        state=outcome if view.ended is None else view.ended.outcome,
        answer=root.text if root is not None and answered else None,
        data=root.data if root is not None and answered else None,
        why="" if answered else _explain_no_answer(state),
        draft="" if root is None or answered else root.draft,
        started_at=view.started_at,
        seconds=view.at - view.started_at,
        usage=view.usage,
        budget=view.budget.current,
        parts=() if root is None else tuple(_iter_all_parts(state, root)),
        reflections=tuple(_iter_reflections(state)),
        discussions=tuple(_iter_discussions(state)),
        open_points=tuple(_iter_open_points(state)),
        changed_files=tuple(
            ReportedFile(path=path, agents=agents) for path, agents in sorted(state.changed_files.items())
        ),
    )


def _explain_no_answer(state: RunResults) -> str:
    """Return why there is no answer."""
    ended = state.view.ended
    if ended is None:
        return "it is paused" if state.view.is_paused else "it has not ended"
    if ended.failure is not None:
        return str(ended.failure)
    by = f" by {state.view.stopped_by}" if state.view.stopped_by else ""
    return f"it was stopped{by}" if ended.outcome == "cancelled" else f"its outcome is {ended.outcome}"


def _iter_all_parts(state: RunResults, root: OperationNode) -> Iterator[ReportPart]:
    """Yield the parts of all operations below the first agent's operation.

    If the first agent handed its work off to another agent, its own answer comes first.
    """
    if root.path in state.own_texts:
        own = _build_part(state, root, 0)
        yield structs.replace(own, state="succeeded", why="")
    yield from _iter_parts(state, root, 0)


def _iter_parts(state: RunResults, node: OperationNode, depth: int) -> Iterator[ReportPart]:
    """Yield the parts of the operations below `node`, except votes and evaluators that are not members.

    A team's parts are sorted by iteration or round, then by member. Members that have not started come last.
    """
    places = {name: place for place, name in enumerate(node.members)}
    judge = "" if node.team is None else node.team.evaluator or ""
    working = [child for child in node.children if child.trigger != "vote"]
    children = [child for child in working if child.agent != judge or judge in places]
    if places:
        children.sort(
            key=lambda child: (
                _PHASES.get(child.trigger, 1),
                state.numbers.get(child.path, 0),
                places.get(child.agent, len(places)),
            )
        )
    for child in children:
        yield _build_part(state, child, depth)
        yield from _iter_parts(state, child, depth + 1)
    begun = {child.agent for child in children}
    yield from (ReportPart(agent=name, state="not_begun", depth=depth) for name in places if name not in begun)


def _build_part(state: RunResults, node: OperationNode, depth: int) -> ReportPart:
    return ReportPart(
        agent=node.agent,
        state=node.outcome or "unfinished",
        operation=node.path,
        trigger=node.trigger,
        number=state.numbers.get(node.path, 0),
        depth=depth,
        seconds=_duration_of(state, node),
        usage=node.usage,
        text=state.own_texts.get(node.path, node.draft),
        why="" if node.failure is None else node.failure.describe_to(node.agent),
    )


def _duration_of(state: RunResults, node: OperationNode) -> float:
    return (state.view.at if node.ended is None else node.ended) - node.started


def _iter_reflections(state: RunResults) -> Iterator[ReflectionReport]:
    for path, loop in state.loops.items():
        node = state.view.find_node(path)
        assert node is not None
        options = {} if node.team is None else node.team.options
        ended = loop.ended
        yield ReflectionReport(
            lead=node.agent,
            operation=path,
            goal=node.request.original,
            end=_infer_loop_end(state, node) if ended is None else ended.end,
            iterations=loop.iterations if ended is None else ended.iterations,
            most=(ended.most if ended is not None else 0) or options.get("max_iterations", DEFAULT_MAX_ITERATIONS),
            seconds=_duration_of(state, node),
            score=loop.evaluations[-1].score if loop.evaluations else 0.0,
            evaluations=tuple(loop.evaluations),
            checks=tuple(loop.checks),
            proposals=tuple(loop.proposals.values()),
        )


def _infer_loop_end(state: RunResults, node: OperationNode) -> ReflectEnd | None:
    """Return how a loop ended if its end is not recorded, or None if it may continue."""
    if node.ended is None:
        return "paused" if state.view.is_paused else None
    failure = node.failure or (None if state.view.ended is None else state.view.ended.failure)
    return "budget_exhausted" if failure is not None and failure.kind == "budget" else "cancelled"


def _iter_discussions(state: RunResults) -> Iterator[DiscussionReport]:
    for path, record in state.discussions.items():
        node = state.view.find_node(path)
        assert node is not None
        cut = {"budget_exhausted": "budget", "cancelled": "stopped"}.get(_infer_loop_end(state, node) or "")
        yield DiscussionReport(
            lead=node.agent,
            operation=path,
            end=cut if record.ended is None else record.ended.by,
            rounds=record.rounds if record.ended is None else record.ended.rounds,
            said=tuple(record.said),
            votes=tuple(record.votes.values()),
        )


def _iter_open_points(state: RunResults) -> Iterator[OpenPoint]:
    for id, entry in state.view.requests.unanswered.items():
        node = state.view.find_node(entry.operation)
        agent = "" if node is None else node.agent
        # An agent that has succeeded no longer needs an answer to its request or question.
        if node is not None and node.outcome == "succeeded":
            continue
        match entry.event:
            case PermissionAsked(action=action, reason=reason):
                words = f"{action.tool} {msgspec.json.encode(action.arguments).decode()}: {reason}"
                yield OpenPoint(kind="request", id=id, agent=agent, text=words)
            case QuestionAsked(text=text):
                yield OpenPoint(kind="question", id=id, agent=agent, text=text)
    for message in state.messages.values():
        yield OpenPoint(kind="message", id=message.id, agent=message.to, text=message.text)
    for loop in state.loops.values():
        if loop.evaluations and (held_back := loop.evaluations[-1].held_back):
            yield OpenPoint(kind="claim", agent=loop.evaluations[-1].by, text=held_back)
