"""Events of a run as a whole: its start, end, pauses and resumes, messages, user commands, and the saved checkout."""

from typing import Any, ClassVar, Literal

from ..actor import Channel
from ..agent import Agent, Budget
from ..errors import Failure
from ..guidance import Guidance
from ..request import Attachment, Outcome, Part, Request
from ..worker_task import RunCheckout, WorkerTask
from .base_event import ActorEvent, EventBase
from .plan_events import DecisionProposed


class RunStarted(ActorEvent, frozen=True, kw_only=True, tag="run_started"):
    """A run started with a request to an agent; its agents and settings apply to the whole run."""

    agent: str
    request: Request
    agents: tuple[Agent, ...] = ()
    settings: dict[str, Any] = {}  # noqa: RUF012 - msgspec copies it for each event
    repo: str = ""
    version: str = ""
    errand: WorkerTask | None = None
    """The worker task, if this is a worker's run."""
    after: str = ""
    """The run whose conversation this one continues."""
    decision: DecisionProposed | None = None
    """The decision that the run was started to make, if any."""
    decisions: str = ""
    """The text that tells agents which decisions were in force in the repository when the run started."""
    guidance: Guidance | None = None
    """The instructions, skills and memories for the agents, as they were when the run started."""
    forked_from: str = ""
    """If this run is a fork: the run that it was forked from and the position there, as `RUN@SEQ`."""
    shared: int = 0
    """The number of entries after this one that were copied from the run in `forked_from`."""
    servers: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it for each event
    """The MCP servers that the agents name, each with a digest of its definition. Empty if another machine, which has
    settings of its own, may work on the run."""
    host: str = ""
    """The machine that the run was started on."""
    boot: str = ""
    """The id of that machine's boot. It changes when the machine restarts."""
    by: str = ""
    channel: Channel = ""

    @property
    def checkouts(self) -> tuple[RunCheckout, ...]:
        """The checkouts that the run works in, that of its primary repository first. None without a repository."""
        if self.errand is not None:
            return self.errand.checkouts
        return (RunCheckout(root=self.repo, path=self.repo),) if self.repo else ()


class RunResumed(ActorEvent, frozen=True, kw_only=True, tag="run_resumed"):
    """A process resumed the run where the previous process stopped."""

    host: str
    pid: int
    boot: str = ""
    """The id of the machine's boot. It changes when the machine restarts."""
    by: str = ""
    channel: Channel = ""


class RunPaused(EventBase, frozen=True, kw_only=True, tag="run_paused"):
    """The run is paused: no more steps start until it is resumed.

    With `until`, nobody needs to resume it: it continues by itself at that time, in seconds since the epoch. `reason`
    says what it is waiting for.
    """

    until: float = 0.0
    reason: str = ""


class RunEnded(EventBase, frozen=True, kw_only=True, tag="run_ended"):
    """The run ended and will not change again; the answer is in its first operation's OperationEnded."""

    outcome: Outcome
    failure: Failure | None = None
    parts: tuple[Part, ...] = ()


class StopAsked(ActorEvent, frozen=True, kw_only=True, tag="stop_asked"):
    """Somebody asked to stop the run now and keep its partial results."""

    survives_power_loss: ClassVar[bool] = True

    by: str = ""
    channel: Channel = ""


class PauseAsked(ActorEvent, frozen=True, kw_only=True, tag="pause_asked"):
    """Somebody asked to pause the run."""

    survives_power_loss: ClassVar[bool] = True

    by: str = ""
    channel: Channel = ""


class BudgetChanged(ActorEvent, frozen=True, kw_only=True, tag="budget_changed"):
    """Somebody changed the run's limits; limits that are not in `budget` stay unchanged."""

    survives_power_loss: ClassVar[bool] = True

    budget: Budget
    by: str = ""
    channel: Channel = ""


class MessageReceived(ActorEvent, frozen=True, kw_only=True, tag="message_received"):
    """A message was sent to an agent in the run; it is delivered with the agent's next prompt or model call."""

    survives_power_loss: ClassVar[bool] = True

    id: str
    to: str
    text: str
    by: str = ""
    attachments: tuple[Attachment, ...] = ()
    sender: str = ""
    """The run of the agent that sent the message; empty if a person sent it."""
    channel: Channel = ""


class MessagesDelivered(EventBase, frozen=True, kw_only=True, tag="messages_delivered"):
    """These messages were added to an agent's prompt at this point; each is added once. `text` is the added text."""

    ids: tuple[str, ...]
    text: str = ""


class MessageSent(EventBase, frozen=True, kw_only=True, tag="message_sent"):
    """An agent sent a message to another member of its team. `run` is the run in which that member works."""

    id: str
    to: str
    text: str
    run: str


class MessageAcknowledged(EventBase, frozen=True, kw_only=True, tag="message_acknowledged"):
    """A message from an agent in this run was delivered, or its recipient ended before it could be delivered."""

    id: str
    to: str
    is_delivered: bool = True


class CheckoutSaved(EventBase, frozen=True, kw_only=True, tag="checkout_saved"):
    """The files of the run's checkout were saved as a commit: before the first change, or when the run ended."""

    commit: str
    moment: Literal["before", "after"]


class Noticed(EventBase, frozen=True, kw_only=True, tag="noticed"):
    """A notice for the user that requires no action."""

    text: str


RunEvent = (
    RunStarted
    | RunResumed
    | RunPaused
    | RunEnded
    | StopAsked
    | PauseAsked
    | BudgetChanged
    | MessageReceived
    | MessagesDelivered
    | MessageSent
    | MessageAcknowledged
    | CheckoutSaved
    | Noticed
)
