"""Fault injection: kill the process at a chosen entry, to show that a run survives a crash at any point.

`PODIUM_FAULT=n` kills the process right after the n-th entry is written. While a fault is set, every entry is
committed in its own transaction, so that each n tests a state that a crash could leave behind.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from ..values.errors import Mistake, StoreFailed

EXIT_CODE = 137

Fault = Callable[[], None]


def parse_fault(environ: Mapping[str, str]) -> Fault | None:
    """Return the fault that PODIUM_FAULT sets, or None if it is not set. Raise Mistake if its value is invalid."""
    wanted = environ.get("PODIUM_FAULT")
    if not wanted:
        return None
    if not wanted.isdecimal() or int(wanted) < 1:
        raise Mistake(
            f"PODIUM_FAULT={wanted!r} is invalid; it must be the number of the entry after which to exit, 1 or higher"
        )
    return _trigger_at_entry(int(wanted), _exit_process)


def refuse_after(number: int) -> Fault:
    """Return a fault that makes the store reject all writes after `number` entries, as if the process had died."""
    return _trigger_at_entry(number, _refuse_writes)


def _trigger_at_entry(number: int, action: Callable[[], None]) -> Fault:
    """Return a fault that runs `action` right after the store has written `number` entries."""
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
    raise StoreFailed("the store rejects all further writes, because a fault was requested at this entry")
