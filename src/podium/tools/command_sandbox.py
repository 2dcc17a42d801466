"""Define the sandbox in which tools run commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..system.child_process import Wrap

Seal = Callable[[list[str], Mapping[str, bytes]], list[str]]
"""Wraps a command line in a sandbox in which the given files have the given content.

The files keep this content in the sandbox even if they change outside it."""


@dataclass(frozen=True, eq=False, kw_only=True)
class InstallSandbox:
    """A sandbox for one command that a person allowed to change the programs in the checkout.

    After the command, `list_changed` returns the programs that it changed.
    """

    name: str
    wrap: Wrap
    seal: Seal
    list_changed: Callable[[], tuple[str, ...]]


@dataclass(frozen=True, eq=False, kw_only=True)
class CommandSandbox:
    """A sandbox for commands. `name` is recorded with each action. If `wrap` is None, commands run without a sandbox.

    `wrap_with_input` wraps a command that reads its standard input. `notice` is a message for the user. If commands
    cannot change the programs in the checkout, `open_for_install` returns a sandbox in which a command can, and can
    reach the hosts in its URLs.
    """

    name: str
    wrap: Wrap | None = None
    seal: Seal | None = None
    wrap_with_input: Wrap | None = None
    notice: str = ""
    open_for_install: Callable[[Sequence[str]], InstallSandbox] | None = None
    clean_up: Callable[[], object] = lambda: None
