"""Print a streamed reply: print each part when it is complete, and show the incomplete part as a preview."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..output.text import count_fitting, display_width
from .console import ChatConsole

LONGEST_BLOCK = 50_000
"""A block with more characters than this is printed in parts."""
GROWTH = 1.2
"""An unfinished block is parsed again when it has grown by this factor, to avoid parsing long blocks too often."""


class ReplyPrinter(Protocol):
    """Prints a reply on a console as it is streamed."""

    def add_text(self, text: str) -> None:
        """Add the next piece of the reply, and print the parts that are now complete."""
        ...

    def end_text(self) -> None:
        """Print the remaining text, even if its last part is incomplete. Call this before printing anything else."""
        ...


class LineReplyPrinter:
    """Prints a reply as plain lines, wrapped between words. Markdown is not rendered."""

    def __init__(self, console: ChatConsole, columns: Callable[[], int]) -> None:
        self._console = console
        self._wrapper = LineWrapper(columns)

    def add_text(self, text: str) -> None:
        for line in self._wrapper.add_text(text):
            self._console.print_line(line)
        self._console.show_partial_text(self._wrapper.partial_line)

    def end_text(self) -> None:
        for line in self._wrapper.take_last_line():
            self._console.print_line(line)
        self._console.show_partial_text("")


class MarkdownReplyPrinter:
    """Prints the blocks of a reply, such as paragraphs and lists, rendered as Markdown."""

    def __init__(self, console: ChatConsole) -> None:
        self._console = console
        self._pending = ""
        self._parse_at = 0
        self._has_printed = False

    def add_text(self, text: str) -> None:
        self._pending += text
        # A block is usually followed by an empty line, so the text is not parsed until there is one.
        if "\n" in text and "\n\n" in self._pending and len(self._pending) >= self._parse_at:
            self._print_finished_blocks()
        if len(self._pending) > LONGEST_BLOCK:
            self.end_text()
        before = "\n" if self._has_printed else ""
        self._console.show_partial_text(f"{before}{self._pending}" if self._pending.strip() else "")

    def end_text(self) -> None:
        self._print_block(self._pending)
        self._pending, self._parse_at, self._has_printed = "", 0, False
        self._console.show_partial_text("")

    def _print_finished_blocks(self) -> None:
        # Imported here to keep start-up fast: the chat is shown before the first reply arrives.
        from ..output.rendered_markdown import split_finished_blocks

        # The last line is not parsed until it is complete: it could look like the start of another block.
        whole, end, partial = self._pending.rpartition("\n")
        finished, rest = split_finished_blocks(whole)
        self._print_block(finished)
        self._pending = rest + end + partial
        self._parse_at = 0 if finished else int(len(self._pending) * GROWTH)

    def _print_block(self, text: str) -> None:
        if text.strip():
            if self._has_printed:
                self._console.print_line("")
            self._console.print_agent_text(text)
            self._has_printed = True


class LineWrapper:
    """Wraps text that arrives in pieces into lines that fit the console."""

    def __init__(self, columns: Callable[[], int]) -> None:
        self.partial_line = ""
        """The incomplete last line."""
        self._columns = columns

    def add_text(self, text: str) -> list[str]:
        """Add text and return the lines that it completes."""
        *whole, last = (self.partial_line + text).split("\n")
        lines = [part for line in whole for part in wrap_line(line, self._columns())]
        *full, self.partial_line = wrap_line(last, self._columns())
        return lines + full

    def take_last_line(self) -> list[str]:
        """Return and clear the incomplete last line, if any."""
        rest, self.partial_line = self.partial_line, ""
        return [rest] if rest.strip() else []


def wrap_line(line: str, columns: int) -> list[str]:
    """Split a line into pieces that are narrower than `columns`, between words if possible."""
    most = max(columns - 1, 1)
    parts = []
    while display_width(line) > most:
        fitting = max(count_fitting(line, most), 1)
        at = line.rfind(" ", 1, fitting + 1)
        at = at if at > 0 else fitting
        parts.append(line[:at])
        line = line[at:].removeprefix(" ")
    return [*parts, line]
