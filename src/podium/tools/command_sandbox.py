"""What bounds the commands that tools run: the sandbox around each, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..system.child_process import Wrap

Seal = Callable[[list[str], Mapping[str, bytes]], list[str]]
"""Puts a sandbox around a command line in which these files of the checkout hold this, whatever happens to them."""


@dataclass(frozen=True, eq=False, kw_only=True)
class CommandSandbox:
    """`name` is what an action says about its sandbox; without a `wrap` commands run as they are.

    `notice` is what the person should know.
    """

    name: str
    wrap: Wrap | None = None
    seal: Seal | None = None
    notice: str = ""
    clean_up: Callable[[], object] = lambda: None
