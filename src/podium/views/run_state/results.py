"""Follow what a run has to show besides answers: loops, discussions, changed files and undelivered messages."""

from __future__ import annotations

from msgspec import Struct, field

from ...core.edits import EDITS, Edits
from ...values.event import (
    ActionBegan,
    AdjustmentProposed,
    Broadcast,
    Checked,
    DiscussionEnded,
    Entry,
    Evaluated,
    Event,
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
from . import RunState
from .tree import OperationNode, RunView

LoopEvent = TeamPlanned | Evaluated | Checked | AdjustmentProposed | ReflectEnded
DiscussionEvent = Broadcast | Voted | RoundEnded | DiscussionEnded


class LoopRecord(Struct):
    """A loop of planning, work and evaluation. `proposals` are the proposed changes that were not applied."""

    iterations: int = 0
    ended: ReflectEnded | None = None
    evaluations: list[Evaluated] = []
    checks: list[Checked] = []
    proposals: dict[str, AdjustmentProposed] = {}

    def apply(self, event: LoopEvent) -> None:
        match event:
            case TeamPlanned(iteration=iteration):
                self.iterations = iteration
            case Evaluated(iteration=iteration):
                self.evaluations.append(event)
                self.iterations = max(self.iterations, iteration)
            case Checked():
                self.checks.append(event)
            case AdjustmentProposed(text=text):
                self.proposals[text] = event
            case ReflectEnded():
                self.ended = event

    def drop_applied(self, change: MemberChanged) -> None:
        """Forget the proposals of a change that was made."""
        self.proposals = {
            text: one
            for text, one in self.proposals.items()
            if (one.member, one.model) != (change.member, change.model)
        }


class DiscussionRecord(Struct):
    """A discussion, with the last vote of each member."""

    rounds: int = 0
    ended: DiscussionEnded | None = None
    said: list[Broadcast] = []
    votes: dict[str, Voted] = {}

    def apply(self, event: DiscussionEvent) -> None:
        match event:
            case Broadcast():
                self.said.append(event)
            case Voted(author=author):
                self.votes[author] = event
            case RoundEnded(round=number):
                self.rounds = number
            case DiscussionEnded():
                self.ended = event


class RunResults(RunState):
    """The results of a run: its tree of operations, and what that does not tell."""

    view: RunView = field(default_factory=RunView)
    loops: dict[str, LoopRecord] = field(default_factory=dict)
    """The loops, keyed by the paths of the operations that lead them."""
    discussions: dict[str, DiscussionRecord] = field(default_factory=dict)
    """The discussions, keyed by the paths of the operations that lead them."""
    numbers: dict[str, int] = field(default_factory=dict)
    """The iterations of loops, or rounds of discussions, in which members' operations started, keyed by path."""
    own_texts: dict[str, str] = field(default_factory=dict)
    """The answers that operations gave before they handed off, keyed by path."""
    messages: dict[str, MessageReceived] = field(default_factory=dict)
    """The messages that were not delivered."""
    changed_files: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The agents that changed each file with file tools."""

    def apply(self, entry: Entry, edits: Edits = EDITS) -> None:
        """Apply the next entry."""
        self.view.apply(entry, edits)
        match entry.event:
            case MessageReceived() as event:
                edits.put(self, "messages", event.id, event)
            case MessagesDelivered(ids=ids):
                for id in ids:
                    edits.drop(self, "messages", id)
            case ActionBegan(action=action):
                for path in action.outputs:
                    agents = dict.fromkeys((*self.changed_files.get(path, ()), action.agent))
                    edits.put(self, "changed_files", path, tuple(agents))
            case MemberChanged() as event:
                for path, loop in self.loops.items():
                    loop.drop_applied(event)
                    edits.put(self, "loops", path, loop)
            case _ if (node := self.view.find_node(entry.operation)) is not None:
                self._apply_to_team(node, entry.event, edits)

    def _apply_to_team(self, node: OperationNode, event: Event, edits: Edits) -> None:
        """Apply an event that records an operation's start, a handoff or something in a team."""
        match event:
            case OperationStarted():
                self._start_node(node, edits)
            case HandedOff():
                edits.put(self, "own_texts", node.path, node.draft)
            case TeamPlanned() if node.path not in self.loops:
                pass
            case AdjustmentProposed(is_applied=True):
                pass
            case TeamPlanned() | Evaluated() | Checked() | AdjustmentProposed() | ReflectEnded():
                loop = self.loops.get(node.path) or LoopRecord()
                loop.apply(event)
                edits.put(self, "loops", node.path, loop)
            case Broadcast() | Voted() | RoundEnded() | DiscussionEnded():
                path = self._find_discussion(node) if isinstance(event, Broadcast | Voted) else node.path
                discussion = self.discussions.get(path) or DiscussionRecord()
                discussion.apply(event)
                edits.put(self, "discussions", path, discussion)

    def _start_node(self, node: OperationNode, edits: Edits) -> None:
        mode = "" if node.team is None else node.team.mode
        if mode == "reflect":
            edits.put(self, "loops", node.path, self.loops.get(node.path) or LoopRecord())
        if mode == "discuss":
            edits.put(self, "discussions", node.path, self.discussions.get(node.path) or DiscussionRecord())
        if node.trigger == "member" and node.parent in self.loops:
            edits.put(self, "numbers", node.path, self.loops[node.parent].iterations)
        elif node.trigger == "member" and node.parent in self.discussions:
            edits.put(self, "numbers", node.path, self.discussions[node.parent].rounds + 1)

    def _find_discussion(self, node: OperationNode) -> str:
        """Return the path of the operation that leads the discussion that a message at `node` belongs to.

        If `node` leads a discussion itself, its messages belong to that discussion until `node` ends.
        """
        leads = node.path in self.discussions and node.ended is None
        return node.path if leads or node.parent is None or node.trigger != "member" else node.parent
