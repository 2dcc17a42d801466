"""Plug-ins: extensions of Podium that installed Python packages provide."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

HookFunction = Callable[[dict[str, Any]], Mapping[str, Any] | Awaitable[Mapping[str, Any] | None] | None]
"""A hook function: it receives the event's fields, and returns `decision`, `reason` and `context`, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """The parts that a package adds to Podium. An entry point in the group `podium.plugins` refers to it.

    An agent selects one of the `engines` with its key `engine`, one of the `patterns` with `pattern` or `team.mode`,
    and `tools` by the names of their functions. `hooks` maps events to functions, which are called if a hook names the
    plug-in. `commands` maps the names of commands to click commands.
    """

    engines: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[Callable[..., Any]] = ()
    patterns: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    hooks: Mapping[str, HookFunction] = field(default_factory=dict)
    commands: Mapping[str, Any] = field(default_factory=dict)
