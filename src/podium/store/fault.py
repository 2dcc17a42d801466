"""Dying on purpose: how it is shown that a run survives death at any point.

`PODIUM_FAULT=n` ends the process, hard, right after the n-th entry is written. With a fault set
every entry is a transaction of its own, so that each n is a state that a crash could leave.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from ..values.errors import Mistake, StoreFailed

EXIT_CODE = 137

Fault = Callable[[], None]


def parse_fault(environ: Mapping[str, str]) -> Fault | None:
    """The fault that the environment asks for."""
    wanted = environ.get("PODIUM_FAULT")
    if not wanted:
        return None
    if not wanted.isdecimal() or int(wanted) < 1:
        raise Mistake(f"PODIUM_FAULT is {wanted!r}, but must be the number of the entry after which to die, from 1")
    return trigger_at_entry(int(wanted), _exit_process)


def refuse_after(number: int) -> Fault:
    """A store that takes this many entries and nothing more, as if the process had died there."""
    return trigger_at_entry(number, _refuse_writes)


def trigger_at_entry(number: int, action: Callable[[], None]) -> Fault:
    """Something that happens right after the entry of this number."""
    left = number

    def count_entry() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            action()

    return count_entry


def _exit_process() -> None:
    os._exit(EXIT_CODE)


def _refuse_writes() -> None:
    raise StoreFailed("the store takes nothing more: a fault was asked for here")
