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
    """A sandbox for one installation that a person allowed: it can change the programs in the checkout, or reach hosts.

    `guard` is the reason why a person must allow it, whatever the rules say. If it is empty, rules can allow the
    command in the usual sandbox, and only a person's yes opens this one. After the command, `list_changed` returns
    the programs that it changed.
    """

    name: str
    guard: str
    wrap: Wrap
    seal: Seal
    list_changed: Callable[[], tuple[str, ...]]


@dataclass(frozen=True, eq=False, kw_only=True)
class CommandSandbox:
    """A sandbox for commands. `name` is recorded with each action. If `wrap` is None, commands run without a sandbox.

    `wrap_with_input` wraps a command that reads its standard input. `notice` is a message for the user. `hosts` lists
    the hosts that commands can reach. If `refusal` is not empty, it is the reason why no command can run. For the hosts
    in an installation's URLs and its default sources, `open_for_install` returns a sandbox in which it can change the
    programs in the checkout and reach these hosts, or None if it needs no sandbox of its own.
    """

    name: str
    wrap: Wrap | None = None
    seal: Seal | None = None
    wrap_with_input: Wrap | None = None
    notice: str = ""
    hosts: tuple[str, ...] = ()
    refusal: str = ""
    open_for_install: Callable[[Sequence[str], Sequence[str]], InstallSandbox | None] | None = None
    clean_up: Callable[[], object] = lambda: None
