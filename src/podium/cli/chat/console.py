"""Define the interface between a chat and its terminal.

There are two implementations: a prompt that stays at the bottom while output scrolls above it, and a plain,
line-based console for terminals that do not support such a prompt.
"""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from ..output.request_prompt import Keyboard


class ChatConsole(Keyboard, Protocol):
    """A console for chatting and for answering requests. In its `with` block, nothing else uses the terminal."""

    can_render: bool
    """Whether text from agents is rendered as Markdown."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    async def read_message(self) -> str | None:
        """Return the next line that the user enters, or None at the end of input."""
        ...

    def print_line(self, text: str) -> None:
        """Print `text` and end the line. Control characters are escaped."""
        ...

    def print_agent_text(self, text: str) -> None:
        """Print text from an agent, rendered as Markdown if `can_render` is true."""
        ...

    def show_partial_text(self, text: str) -> None:
        """Show the last lines of text that is still incomplete, or nothing if `text` is empty."""
        ...

    def show_activity(self, activity: str) -> None:
        """Show an activity and its duration, or nothing if `activity` is empty."""
        ...

    def show_prompt(self, name: str) -> None:
        """Show the prompt for a message to the agent with this name."""
        ...

    def restore_line(self, text: str) -> None:
        """Put an undelivered line back into the input, before any text that is being typed."""
        ...

    def clear_line(self) -> None:
        """Clear the line that is being typed."""
        ...

    def clear_screen(self) -> None:
        """Clear the screen."""
        ...
