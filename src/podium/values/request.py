"""What an agent is asked, and what comes back."""

from __future__ import annotations

import re
from typing import Any, Literal

from msgspec import Struct

from .errors import Failure

Outcome = Literal["succeeded", "failed", "timed_out", "cancelled", "paused", "interrupted"]


class Note(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something an agent should know beside what it is asked: a heading, and the words quoted under it."""

    title: str
    text: str = ""


class Request(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an agent is asked.

    `text` reaches the agent verbatim. `origin` holds the person's own words where `text` is
    something else, such as another agent's answer or the request with advice added.
    """

    text: str
    origin: str = ""
    notes: tuple[Note, ...] = ()

    @property
    def original(self) -> str:
        """What the person asked for."""
        return self.origin or self.text

    def prompt(self) -> str:
        """The message to the agent: the text verbatim, then each note in a block of its own.

        Quoted lines all begin with "> ", so that nothing in them can pass for a heading of ours; a
        line of the text that would read as one gets a backslash.
        """
        return "\n\n".join(
            [
                escape_headings(self.text, _BLOCK) if "[" in self.text else self.text,
                *(f"[context: {note.title}]{quote_lines(note.text)}" for note in self.notes),
            ]
        )


class Part(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One agent's contribution to an answer, or why there is none."""

    agent: str
    outcome: Outcome
    text: str = ""
    failure: Failure | None = None


class Answer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an agent came back with."""

    text: str
    data: Any = None
    parts: tuple[Part, ...] = ()


LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""Every character that anybody might take for the end of a line."""

_BLOCK = r"\[(?:context:|message from )"


def escape_headings(text: str, heading: str) -> str:
    """The text with a backslash before each line that begins like a heading of ours, in any case."""
    pattern = rf"(^|[{LINE_BREAKS}])([^\S{LINE_BREAKS}]*)({heading})"
    return re.sub(pattern, r"\1\2\\\3", text, flags=re.IGNORECASE)


def replace_surrogates(text: str) -> str:
    """The text as it can be written down: half a character, which UTF-8 does not know, becomes a mark."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def quote_lines(text: str) -> str:
    """Each line of a text on a new line behind "> "."""
    return "".join(f"\n> {line}" for line in text.splitlines())
