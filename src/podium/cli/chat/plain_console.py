"""Implement a line-based chat console for terminals without cursor control.

The terminal handles line editing. A single-key answer is entered as a line: `y`, then Enter.
"""

from __future__ import annotations

import os
import sys
from asyncio import Queue
from types import TracebackType
from typing import Self

import click
from anyio import wait_readable

from ..output.text import escape_for_terminal

EOF = b""


class PlainConsole:
    """A console that reads and prints lines."""

    can_render = False

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._output = sys.stdout
        self._buffer = EOF
        self._answers: Queue[str] | None = None
        self._is_prompted = False
        self._is_busy = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

    async def read_message(self) -> str | None:
        while (line := await self._read_input_line()) is not None:
            self._is_prompted = False
            if self._answers is None:
                return line
            self._answers.put_nowait(line)
        return None

    async def _read_input_line(self) -> str | None:
        while b"\n" not in self._buffer:
            await wait_readable(self._input)
            if (got := os.read(self._input, 65536)) == EOF:
                return None
            self._buffer += got
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace")

    def print_line(self, text: str) -> None:
        click.echo(f"{self._end_prompt_line()}{escape_for_terminal(text)}", file=self._output)

    def print_agent_text(self, text: str) -> None:
        self.print_line(text)

    def show_partial_text(self, text: str) -> None:
        """Do nothing: only complete lines are printed."""

    def show_activity(self, activity: str) -> None:
        """Print only the first of several consecutive activities, because a printed line cannot be replaced."""
        if activity and not self._is_busy:
            self.print_line(f"  ({activity})")
        self._is_busy = bool(activity)

    def show_prompt(self, name: str) -> None:
        click.echo(f"{self._end_prompt_line()}{escape_for_terminal(name)}> ", file=self._output, nl=False)
        self._is_prompted = True

    def _end_prompt_line(self) -> str:
        was_prompted, self._is_prompted = self._is_prompted, False
        return "\n" if was_prompted else ""

    def restore_line(self, text: str) -> None:
        """Print the line that was not sent. It cannot be put back into the input line, which the terminal controls."""
        self.print_line(f"  not sent: {text}")

    def clear_line(self) -> None:
        """Do nothing: the terminal clears its input line itself."""

    def clear_screen(self) -> None:
        """Do nothing: this console does not draw on the screen."""

    # Answers

    def discard_input(self) -> None:
        import termios  # imported here, because it is not available on every system

        termios.tcflush(self._input, termios.TCIFLUSH)
        self._buffer = EOF

    async def read_key(self) -> str:
        said = (await self.read_line()).strip()
        return said if len(said) == 1 else ""

    async def discard_line(self) -> None:
        """Do nothing: reading a key has already consumed the whole line."""

    async def read_line(self) -> str:
        self._answers = Queue()
        try:
            return await self._answers.get()
        finally:
            self._answers = None
