"""Who does something, through which interface, and with which right.

An act is a function for something that a person or a program can do, such as sending a message to a run. All interfaces
call it and pass the actor, which is recorded with its events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from msgspec import Struct

Channel = Literal[
    "",
    "terminal",
    "chat",
    "command",
    "page",
    "api",
    "mcp",
    "acp",
    "a2a",
    "openai",
    "watch",
    "schedule",
    "agent",
    "rule",
    "timeout",
    "unattended",
]
"""The interface through which something was done, or `rule`, `timeout` or `unattended` if Podium decided by itself.

`terminal` is a question in the terminal, `command` is a command, `api` is the HTTP API or a Python program, and `agent`
is a tool that an agent called. The channel is empty for what Podium does by itself for other reasons, and in the logs
of early releases.
"""

AccessScope = Literal["read", "act", "approve"]
"""What a client of the HTTP API may do. `approve` is for what a person decides, such as answers to requests."""

Function = TypeVar("Function", bound=Callable[..., Any])


class Actor(Struct, frozen=True, kw_only=True):
    """A person or a program that does something: its name, and the interface that it uses."""

    name: str
    channel: Channel


PODIUM = Actor(name="Podium", channel="")
"""Podium itself, for example when a worker's process takes over the run that it was started for."""


def format_actor(name: str, channel: Channel) -> str:
    """Return who did something, and through which interface, as in `ada (terminal)`. Empty parts are omitted."""
    return f"{name} ({channel})" if name and channel else name or channel


def act(scope: AccessScope) -> Callable[[Function], Function]:
    """Mark a function as an act, and declare the scope that a client of the HTTP API needs to call it."""

    def declare(function: Function) -> Function:
        function.__dict__["podium_scope"] = scope
        return function

    return declare


def get_scope(function: Callable[..., Any]) -> AccessScope:
    """Return the scope that a client of the HTTP API needs for an act. Raise TypeError if it is not an act."""
    scope: AccessScope | None = getattr(function, "podium_scope", None)
    if scope is None:
        raise TypeError(f"{function.__qualname__} is not an act: it declares no scope")
    return scope
