"""Events of an operation: its start and end, advice, routes and handoffs."""

from __future__ import annotations

from typing import Any, Literal

from ..errors import Failure
from ..request import Outcome, Part, Request
from .base_event import EventBase

Trigger = Literal["request", "handoff", "route", "advice", "member", "tool", "retry"]


class StatusReported(EventBase, frozen=True, kw_only=True, tag="status_reported"):
    """An agent said where it stands."""

    text: str


class OperationStarted(EventBase, frozen=True, kw_only=True, tag="operation_started"):
    """An agent began its part of the run."""

    agent: str
    trigger: Trigger
    request: Request


class OperationEnded(EventBase, frozen=True, kw_only=True, tag="operation_ended"):
    """An agent's part is over. Whatever it had started and not finished ended with it."""

    outcome: Outcome
    text: str = ""
    data: Any = None
    parts: tuple[Part, ...] = ()
    failure: Failure | None = None


class Advised(EventBase, frozen=True, kw_only=True, tag="advised"):
    """All advisors were heard or given up."""

    heard: tuple[str, ...] = ()
    unavailable: tuple[Part, ...] = ()


class RouteRefused(EventBase, frozen=True, kw_only=True, tag="route_refused"):
    """A router named somebody who is none of its destinations, or nobody."""

    chosen: str
    destinations: tuple[str, ...]


class Routed(EventBase, frozen=True, kw_only=True, tag="routed"):
    """The request goes to this agent."""

    agent: str
    reason: str = ""
    is_fallback: bool = False


class HandedOff(EventBase, frozen=True, kw_only=True, tag="handed_off"):
    """One agent's answer went on to another, which answers in its place."""

    sender: str
    receiver: str
