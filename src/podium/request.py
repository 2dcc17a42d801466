"""What an agent is asked, and what comes back."""

from __future__ import annotations

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

        Quoted lines all begin with "> ", so that nothing in them can pass for a heading of ours.
        """
        return "\n\n".join([self.text, *(f"[context: {note.title}]{quoted(note.text)}" for note in self.notes)])


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


def quoted(text: str) -> str:
    """Each line of a text on a new line behind "> "."""
    return "".join(f"\n> {line}" for line in text.splitlines())
