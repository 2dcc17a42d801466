"""Describe the sandbox for the commands that tools run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..system.child_process import Wrap

Seal = Callable[[list[str], Mapping[str, bytes]], list[str]]
"""Wraps a command line in a sandbox where the given files have the given content, even if they change outside."""


@dataclass(frozen=True, eq=False, kw_only=True)
class CommandSandbox:
    """A sandbox for commands. `name` is recorded with each action. Without `wrap`, commands run unsandboxed.

    `notice` is a message for the user.
    """

    name: str
    wrap: Wrap | None = None
    seal: Seal | None = None
    notice: str = ""
    clean_up: Callable[[], object] = lambda: None
