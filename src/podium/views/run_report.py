"""Build a report of a run's results, at any time and in any state of the run.

Like the run view, the report is computed from the timeline. The command line and the web interface each format it in
their own way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct, field, structs

from ..core.edits import EDITS, Edits
from ..values.agent import Budget
from ..values.event import Entry, PermissionAsked, QuestionAsked, ReflectEnd, Trigger
from ..values.usage import Usage
from .report_parts import ChangedFile, DiscussionReport, OpenPoint, ReflectionReport, ReportPart, State
from .run_state import RunState
from .run_state.results import RunResults
from .run_state.tree import OperationNode, RunView

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
    changed_files: tuple[ChangedFile, ...]

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
        return ReportState.from_entries(entries).build_report()


class ReportState(RunState):
    """The parts of a run's state that its report needs."""

    view: RunView = field(default_factory=RunView)
    results: RunResults = field(default_factory=RunResults)

    def apply(self, entry: Entry, edits: Edits = EDITS) -> None:
        """Apply the next entry."""
        self.view.apply(entry, edits)
        self.results.apply(entry, self.view, edits)

    def build_report(self) -> Report:
        """Return the report after the last applied entry."""
        view, started, root = self.view, self.view.started, self.view.root
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
            why="" if answered else self._explain_no_answer(),
            draft="" if root is None or answered else root.draft,
            started_at=view.started_at,
            seconds=view.at - view.started_at,
            usage=view.usage,
            budget=view.budget.current,
            parts=() if root is None else tuple(self._iter_all_parts(root)),
            reflections=tuple(self._iter_reflections()),
            discussions=tuple(self._iter_discussions()),
            open_points=tuple(self._iter_open_points()),
            changed_files=tuple(
                ChangedFile(path=path, agents=agents) for path, agents in sorted(self.results.changed_files.items())
            ),
        )

    def _explain_no_answer(self) -> str:
        """Return why there is no answer."""
        ended = self.view.ended
        if ended is None:
            return "it is paused" if self.view.is_paused else "it has not ended"
        if ended.failure is not None:
            return str(ended.failure)
        by = f" by {self.view.stopped_by}" if self.view.stopped_by else ""
        return f"it was stopped{by}" if ended.outcome == "cancelled" else f"its outcome is {ended.outcome}"

    def _iter_all_parts(self, root: OperationNode) -> Iterator[ReportPart]:
        """Yield the parts of all operations below the first agent's operation.

        If the first agent handed its work off to another agent, its own answer comes first.
        """
        if root.path in self.results.own_texts:
            own = self._build_part(root, 0)
            yield structs.replace(own, state="succeeded", why="")
        yield from self._iter_parts(root, 0)

    def _iter_parts(self, node: OperationNode, depth: int) -> Iterator[ReportPart]:
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
                    self.results.numbers.get(child.path, 0),
                    places.get(child.agent, len(places)),
                )
            )
        for child in children:
            yield self._build_part(child, depth)
            yield from self._iter_parts(child, depth + 1)
        begun = {child.agent for child in children}
        yield from (ReportPart(agent=name, state="not_begun", depth=depth) for name in places if name not in begun)

    def _build_part(self, node: OperationNode, depth: int) -> ReportPart:
        return ReportPart(
            agent=node.agent,
            state=node.outcome or "unfinished",
            operation=node.path,
            trigger=node.trigger,
            number=self.results.numbers.get(node.path, 0),
            depth=depth,
            seconds=self._duration_of(node),
            usage=node.usage,
            text=self.results.own_texts.get(node.path, node.draft),
            why="" if node.failure is None else node.failure.describe_to(node.agent),
        )

    def _duration_of(self, node: OperationNode) -> float:
        return (self.view.at if node.ended is None else node.ended) - node.started

    def _iter_reflections(self) -> Iterator[ReflectionReport]:
        for path, loop in self.results.loops.items():
            node = self.view.find_node(path)
            assert node is not None
            options = {} if node.team is None else node.team.options
            ended = loop.ended
            yield ReflectionReport(
                lead=node.agent,
                operation=path,
                goal=node.request.original,
                end=self._infer_loop_end(node) if ended is None else ended.end,
                iterations=loop.iterations if ended is None else ended.iterations,
                most=(ended.most if ended is not None else 0) or options.get("max_iterations", DEFAULT_MAX_ITERATIONS),
                seconds=self._duration_of(node),
                score=loop.evaluations[-1].score if loop.evaluations else 0.0,
                evaluations=tuple(loop.evaluations),
                checks=tuple(loop.checks),
                proposals=tuple(loop.proposals.values()),
            )

    def _infer_loop_end(self, node: OperationNode) -> ReflectEnd | None:
        """Return how a loop ended if its end is not recorded, or None if it may continue."""
        if node.ended is None:
            return "paused" if self.view.is_paused else None
        failure = node.failure or (None if self.view.ended is None else self.view.ended.failure)
        return "budget_exhausted" if failure is not None and failure.kind == "budget" else "cancelled"

    def _iter_discussions(self) -> Iterator[DiscussionReport]:
        for path, record in self.results.discussions.items():
            node = self.view.find_node(path)
            assert node is not None
            cut = {"budget_exhausted": "budget", "cancelled": "stopped"}.get(self._infer_loop_end(node) or "")
            yield DiscussionReport(
                lead=node.agent,
                operation=path,
                end=cut if record.ended is None else record.ended.by,
                rounds=record.rounds if record.ended is None else record.ended.rounds,
                said=tuple(record.said),
                votes=tuple(record.votes.values()),
            )

    def _iter_open_points(self) -> Iterator[OpenPoint]:
        for id, entry in self.view.requests.unanswered.items():
            node = self.view.find_node(entry.operation)
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
        for message in self.results.messages.values():
            yield OpenPoint(kind="message", id=message.id, agent=message.to, text=message.text)
        for loop in self.results.loops.values():
            if loop.evaluations and (held_back := loop.evaluations[-1].held_back):
                yield OpenPoint(kind="claim", agent=loop.evaluations[-1].by, text=held_back)
