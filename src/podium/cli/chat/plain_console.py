"""A chat in plain lines, for a terminal on which nothing can be drawn.

Lines are edited by the terminal itself, and keys are answered as lines: `y`, then Enter.
"""

from __future__ import annotations

import os
import sys
from asyncio import Queue
from types import TracebackType
from typing import Self

import click
from anyio import wait_readable

from ..terminal.text import visible

ENDED = b""


class Plain:
    """Reads lines and prints lines."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._output = sys.stdout
        self._rest = ENDED
        self._answers: Queue[str] | None = None
        self._is_prompted = False
        self._is_busy = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

    async def read(self) -> str | None:
        while (line := await self._line()) is not None:
            self._is_prompted = False
            if self._answers is None:
                return line
            self._answers.put_nowait(line)
        return None

    async def _line(self) -> str | None:
        while b"\n" not in self._rest:
            await wait_readable(self._input)
            if (got := os.read(self._input, 65536)) == ENDED:
                return None
            self._rest += got
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace")

    def tell(self, text: str) -> None:
        click.echo(f"{self._broken()}{visible(text)}", file=self._output)

    def hint(self, text: str) -> None:
        """A line is shown when it is whole."""

    def busy(self, doing: str) -> None:
        """Only the beginning is shown: what is shown once cannot be taken back."""
        if doing and not self._is_busy:
            self.tell(f"  ({doing})")
        self._is_busy = bool(doing)

    def ready(self, name: str) -> None:
        click.echo(f"{self._broken()}{visible(name)}> ", file=self._output, nl=False)
        self._is_prompted = True

    def _broken(self) -> str:
        was_prompted, self._is_prompted = self._is_prompted, False
        return "\n" if was_prompted else ""

    def clear(self) -> None:
        """A screen that is not drawn on cannot be emptied."""

    # Answers

    def forget(self) -> None:
        import termios  # here, because not every system has it

        termios.tcflush(self._input, termios.TCIFLUSH)
        self._rest = ENDED

    async def key(self) -> str:
        said = (await self.line()).strip()
        return said if len(said) == 1 else ""

    async def rest(self) -> None:
        """A key was a whole line."""

    async def line(self) -> str:
        self._answers = Queue()
        try:
            return await self._answers.get()
        finally:
            self._answers = None
