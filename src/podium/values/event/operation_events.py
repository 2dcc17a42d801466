"""Events of an operation: its start and end, advice, routes, handoffs and hooks."""

from typing import Any, Literal

from ..errors import Failure
from ..hook import HookEvent, HookOutcome
from ..request import Outcome, Part, Request
from .base_event import EventBase


class HookRan(EventBase, frozen=True, kw_only=True, tag="hook_ran"):
    """A hook was called. It passed, denied the action, or failed.

    `hook` is its command line or plug-in. `agent` is the agent whose file defines the hook, or empty if the settings
    define it. `reason` says why it denied the action or failed. `context` is the text that it added for the agent.
    """

    event: HookEvent
    hook: str
    outcome: HookOutcome
    agent: str = ""
    reason: str = ""
    context: str = ""
    seconds: float = 0.0


Trigger = Literal["request", "handoff", "route", "advice", "member", "tool", "retry", "vote"]


class StatusReported(EventBase, frozen=True, kw_only=True, tag="status_reported"):
    """An agent reported its status."""

    text: str


class MemoryChanged(EventBase, frozen=True, kw_only=True, tag="memory_changed"):
    """An agent changed its memory. Lines of `diff` begin with `-` if they were removed, and with `+` if added."""

    agent: str
    path: str
    diff: str


class OperationStarted(EventBase, frozen=True, kw_only=True, tag="operation_started"):
    """An agent started its operation."""

    agent: str
    trigger: Trigger
    request: Request


class OperationEnded(EventBase, frozen=True, kw_only=True, tag="operation_ended"):
    """An agent's operation ended, and with it every unfinished operation below it.

    `seconds` is how long the operation took, excluding the time spent waiting for a person. It is recorded only if the
    operation shares a time limit with other operations. `unproved` is the reason why the work is unproved, although the
    operation succeeded: its last check or call failed or was refused, or its last edit changed nothing.
    """

    outcome: Outcome
    text: str = ""
    data: Any = None
    parts: tuple[Part, ...] = ()
    failure: Failure | None = None
    seconds: float = 0.0
    unproved: str = ""


class Advised(EventBase, frozen=True, kw_only=True, tag="advised"):
    """Every advisor gave its advice or was unavailable."""

    heard: tuple[str, ...] = ()
    unavailable: tuple[Part, ...] = ()


class ChangesExpected(EventBase, frozen=True, kw_only=True, tag="changes_expected"):
    """An agent has started, and its work must change files.

    `commit` is the state of its checkout at that moment, or empty if there is no repository.
    """

    commit: str = ""


class RouteRefused(EventBase, frozen=True, kw_only=True, tag="route_refused"):
    """A router chose no agent, or an agent that is not one of its destinations."""

    chosen: str
    destinations: tuple[str, ...]


class Routed(EventBase, frozen=True, kw_only=True, tag="routed"):
    """A router passed the request to this agent."""

    agent: str
    reason: str = ""
    is_fallback: bool = False


class HandedOff(EventBase, frozen=True, kw_only=True, tag="handed_off"):
    """An agent's answer was handed to another agent, which answers instead."""

    sender: str
    receiver: str


class StepEnded(EventBase, frozen=True, kw_only=True, tag="step_ended"):
    """A step of a pattern ended; a resumed run takes its result from here instead of executing the step again."""

    name: str
    result: Any = None


OperationEvent = (
    StatusReported
    | StepEnded
    | MemoryChanged
    | OperationStarted
    | OperationEnded
    | Advised
    | ChangesExpected
    | RouteRefused
    | Routed
    | HandedOff
)
