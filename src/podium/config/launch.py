"""A launch: how a program is started, as settings files say it."""

from __future__ import annotations

from msgspec import Struct


class Launch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A program with its arguments and variables."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
