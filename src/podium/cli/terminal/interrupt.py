"""Ctrl-C and SIGTERM: once in good order, twice at once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from anyio import CancelScope

from .exit_codes import SIGNALLED

SHOW_CURSOR = b"\x1b[?25h\n"


@dataclass(slots=True)
class Interruption:
    """The signal that interrupted the work; None while there was none."""

    signal: int | None = None


@contextmanager
def cancel_on_signal(scope: CancelScope) -> Iterator[Interruption]:
    """Let a signal cancel `scope`, and a second one end the process on the spot."""
    interruption = Interruption()
    loop = asyncio.get_running_loop()

    def handle_first_signal(number: int) -> None:
        interruption.signal = number
        for each in _SIGNALS:
            # Not through the loop: what the first signal has set off may keep it busy.
            loop.remove_signal_handler(each)
            signal.signal(each, _exit_at_once)
        scope.cancel()

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        loop.add_signal_handler(number, handle_first_signal, number)
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def _exit_at_once(number: int, frame: FrameType | None) -> None:
    if sys.__stderr__ is not None and sys.__stderr__.isatty():
        os.write(sys.__stderr__.fileno(), SHOW_CURSOR)
    os._exit(SIGNALLED + number)
