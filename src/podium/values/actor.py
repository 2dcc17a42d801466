"""Who did something, and through which interface."""

from __future__ import annotations

from typing import Literal

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

`agent` is a tool that an agent called. The channel is empty in the logs of early releases.
"""


class Actor(Struct, frozen=True, kw_only=True):
    """A person or a program that does something: its name, and the interface that it uses."""

    name: str
    channel: Channel

    def __str__(self) -> str:
        return self.name
