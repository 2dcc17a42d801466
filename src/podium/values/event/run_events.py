"""Events of a run as a whole: how it starts, ends and is resumed, and what a person says to it."""

from __future__ import annotations

from typing import Any, ClassVar

from ..agent import Agent, Budget
from ..attachment import Attachment
from ..errors import Failure
from ..request import Outcome, Part, Request
from ..worker_task import WorkerTask
from .base_event import EventBase


class RunStarted(EventBase, frozen=True, kw_only=True, tag="run_started"):
    """A request was given to an agent; the agents and settings are those that hold for the whole run."""

    agent: str
    request: Request
    agents: tuple[Agent, ...] = ()
    settings: dict[str, Any] = {}  # noqa: RUF012 - msgspec copies it for each event
    repo: str = ""
    version: str = ""
    errand: WorkerTask | None = None
    """What a worker was sent to do, where the run is one's."""
    after: str = ""
    """The run whose conversation this one goes on with."""


class RunResumed(EventBase, frozen=True, kw_only=True, tag="run_resumed"):
    """Another process went on with the run where the last one left it."""

    host: str
    pid: int


class RunPaused(EventBase, frozen=True, kw_only=True, tag="run_paused"):
    """No further step begins until somebody resumes the run."""


class RunEnded(EventBase, frozen=True, kw_only=True, tag="run_ended"):
    """The run is over and will not change again; the answer stands at its first operation's end."""

    outcome: Outcome
    failure: Failure | None = None
    parts: tuple[Part, ...] = ()


class StopAsked(EventBase, frozen=True, kw_only=True, tag="stop_asked"):
    """Somebody wants the run to end now, with what there is."""

    survives_power_loss: ClassVar[bool] = True

    by: str = ""


class PauseAsked(EventBase, frozen=True, kw_only=True, tag="pause_asked"):
    """Somebody wants the run to begin nothing more for now."""

    survives_power_loss: ClassVar[bool] = True

    by: str = ""


class BudgetChanged(EventBase, frozen=True, kw_only=True, tag="budget_changed"):
    """Somebody gave the run other limits; they hold from here on, and those that `budget` leaves out as before."""

    survives_power_loss: ClassVar[bool] = True

    budget: Budget
    by: str = ""


class MessageReceived(EventBase, frozen=True, kw_only=True, tag="message_received"):
    """The person said something to an agent of the run; it reaches the agent at its next turn."""

    survives_power_loss: ClassVar[bool] = True

    id: str
    to: str
    text: str
    by: str = ""
    attachments: tuple[Attachment, ...] = ()


class MessagesDelivered(EventBase, frozen=True, kw_only=True, tag="messages_delivered"):
    """These messages went into the turn that begins here, and into no other."""

    ids: tuple[str, ...]
    text: str = ""


class Noticed(EventBase, frozen=True, kw_only=True, tag="noticed"):
    """Something the person should know and need not act on."""

    text: str
