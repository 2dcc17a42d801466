"""Follow what a run has to show besides answers: loops, discussions, changed files and undelivered messages.

Some of it depends on the tree of operations, to which an entry has to be applied first.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from ...core.edits import EDITS, Edits, Place
from ...values.event import (
    KINDS,
    ActionBegan,
    AdjustmentProposed,
    Broadcast,
    Checked,
    DiscussionEnded,
    Entry,
    Evaluated,
    HandedOff,
    MemberChanged,
    MessageReceived,
    MessagesDelivered,
    OperationStarted,
    ReflectEnded,
    RoundEnded,
    TeamPlanned,
    Voted,
)
from .tree import OperationNode, RunView

_EVENTS = frozenset(
    {
        *(ActionBegan, MessageReceived, MessagesDelivered, MemberChanged, OperationStarted, HandedOff, TeamPlanned),
        *(Evaluated, Checked, AdjustmentProposed, ReflectEnded, Broadcast, Voted, RoundEnded, DiscussionEnded),
    }
)


class LoopRecord(Struct):
    """A loop of planning, work and evaluation. `proposals` are the proposed changes that were not applied."""

    path: str
    iterations: int = 0
    ended: ReflectEnded | None = None
    evaluations: list[Evaluated] = []
    checks: list[Checked] = []
    proposals: dict[str, AdjustmentProposed] = {}

    @property
    def place(self) -> Place:
        """The place in the state of a run."""
        return ("results", "loops", self.path)


class DiscussionRecord(Struct):
    """A discussion, with the last vote of each member."""

    path: str
    rounds: int = 0
    ended: DiscussionEnded | None = None
    said: list[Broadcast] = []
    votes: dict[str, Voted] = {}

    @property
    def place(self) -> Place:
        """The place in the state of a run."""
        return ("results", "discussions", self.path)


class RunResults(Struct):
    """The results of a run besides its answers, built by applying the entries of its timeline in order."""

    KINDS: ClassVar = tuple(sorted(KINDS[event] for event in _EVENTS))
    """The kinds of entries that change the results."""

    loops: dict[str, LoopRecord] = {}
    """The loops, keyed by the paths of the operations that lead them."""
    discussions: dict[str, DiscussionRecord] = {}
    """The discussions, keyed by the paths of the operations that lead them."""
    numbers: dict[str, int] = {}
    """The iterations of loops, or rounds of discussions, in which members' operations started, keyed by path."""
    own_texts: dict[str, str] = {}
    """The answers that operations gave before they handed off, keyed by path."""
    messages: dict[str, MessageReceived] = {}
    """The messages that were not delivered."""
    changed_files: dict[str, tuple[str, ...]] = {}
    """The agents that changed each file with file tools."""

    @property
    def place(self) -> Place:
        """The place in the state of a run."""
        return ("results",)

    def apply(self, entry: Entry, view: RunView, edits: Edits = EDITS) -> None:
        """Apply the next entry, which was applied to `view` before."""
        match entry.event:
            case MessageReceived() as event:
                edits.put(self, "messages", event.id, event)
            case MessagesDelivered(ids=ids):
                for id in ids:
                    edits.drop(self, "messages", id)
            case ActionBegan(action=action):
                for path in action.outputs:
                    agents = self.changed_files.get(path, ())
                    if action.agent not in agents:
                        edits.put(self, "changed_files", path, (*agents, action.agent))
            case MemberChanged() as event:
                self._drop_applied_proposals(event, edits)
            case event if type(event) in _EVENTS and (node := view.find_node(entry.operation)) is not None:
                self._apply_to_team(node, view, entry, edits)

    def _apply_to_team(self, node: OperationNode, view: RunView, entry: Entry, edits: Edits) -> None:
        """Apply an entry that records an operation's start, a handoff or an event in a team."""
        match entry.event:
            case OperationStarted():
                self._start_node(node, view, edits)
            case HandedOff():
                edits.put(self, "own_texts", node.path, node.draft)
            case TeamPlanned(iteration=iteration) if node.path in self.loops:
                edits.set(self.loops[node.path], iterations=iteration)
            case Evaluated() as event:
                loop = self._loop(node, edits)
                edits.add(loop, "evaluations", event)
                edits.set(loop, iterations=max(loop.iterations, event.iteration))
            case Checked() as event:
                edits.add(self._loop(node, edits), "checks", event)
            case AdjustmentProposed(is_applied=False) as event:
                edits.put(self._loop(node, edits), "proposals", event.text, event)
            case ReflectEnded() as event:
                edits.set(self._loop(node, edits), ended=event)
            case Broadcast() as event:
                edits.add(self._discussion(self._find_coordinator(node, view), edits), "said", event)
            case Voted() as event:
                edits.put(self._discussion(self._find_coordinator(node, view), edits), "votes", event.author, event)
            case RoundEnded(round=number):
                edits.set(self._discussion(node, edits), rounds=number)
            case DiscussionEnded() as event:
                edits.set(self._discussion(node, edits), ended=event)

    def _start_node(self, node: OperationNode, view: RunView, edits: Edits) -> None:
        if node.team is not None and node.team.mode == "reflect":
            self._loop(node, edits)
        if node.team is not None and node.team.mode == "discuss":
            self._discussion(node, edits)
        if node.trigger == "member" and node.parent in self.loops:
            edits.put(self, "numbers", node.path, self.loops[node.parent].iterations)
        elif node.trigger == "member" and node.parent in self.discussions:
            edits.put(self, "numbers", node.path, self.discussions[node.parent].rounds + 1)

    def _drop_applied_proposals(self, change: MemberChanged, edits: Edits) -> None:
        for loop in self.loops.values():
            for text, proposal in [*loop.proposals.items()]:
                if proposal.member == change.member and proposal.model == change.model:
                    edits.drop(loop, "proposals", text)

    def _loop(self, node: OperationNode, edits: Edits) -> LoopRecord:
        if node.path not in self.loops:
            edits.put(self, "loops", node.path, LoopRecord(node.path))
        return self.loops[node.path]

    def _discussion(self, node: OperationNode, edits: Edits) -> DiscussionRecord:
        if node.path not in self.discussions:
            edits.put(self, "discussions", node.path, DiscussionRecord(node.path))
        return self.discussions[node.path]

    def _find_coordinator(self, node: OperationNode, view: RunView) -> OperationNode:
        """Find the discussion that a message at `node` belongs to, and return the operation that leads it.

        If `node` leads a discussion itself, its messages belong to that discussion until `node` ends.
        """
        leads = node.path in self.discussions and node.ended is None
        parent = view.find_parent(node)
        return node if leads or parent is None or node.trigger != "member" else parent
