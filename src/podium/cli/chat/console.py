"""Where a person sits and talks: what a chat needs of a terminal.

There are two: a prompt that stays at the bottom while others speak above it, and plain lines for
terminals that can do no more.
"""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from ..terminal.request_prompt import Keyboard


class ChatConsole(Keyboard, Protocol):
    """A terminal to talk at, and to answer at; inside its block the terminal is its own."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    async def read_message(self) -> str | None:
        """The next line that the person says; None when there will be no more."""
        ...

    def print_line(self, text: str) -> None:
        """Show text, which ends a line. Nothing in it acts on the terminal."""
        ...

    def show_partial_line(self, text: str) -> None:
        """Show the beginning of a line of which more will come; nothing, where there is none."""
        ...

    def show_activity(self, activity: str) -> None:
        """Show what is being done and for how long already; nothing, where nothing is."""
        ...

    def show_prompt(self, name: str) -> None:
        """Say that the next line goes to the agent of this name, which waits for it."""
        ...

    def clear_screen(self) -> None:
        """Empty the screen."""
        ...
