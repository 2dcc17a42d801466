"""Define the requests to agents, and the agents' answers."""

import re
from typing import Any, Literal

from msgspec import Struct

from .errors import Failure

Outcome = Literal["succeeded", "failed", "timed_out", "cancelled", "paused", "interrupted"]

_OUTCOME_PHRASES: dict[Outcome, str] = {
    "timed_out": "timed out",
    "cancelled": "was cancelled",
    "paused": "was paused",
    "interrupted": "was interrupted",
}


def describe_outcome(outcome: Outcome) -> str:
    """Return an outcome as the predicate of a sentence, such as `failed` or `was cancelled`."""
    return _OUTCOME_PHRASES.get(outcome, outcome)


class Note(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Context for a request: a heading, and the text quoted below it."""

    title: str
    text: str = ""


class Request(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request to an agent.

    `text` reaches the agent unchanged, except for lines that look like Podium's headings. `origin` is the user's
    original request. It is empty if `text` is that request, and set if `text` is, for example, another agent's answer
    or the request with advice added.
    """

    text: str
    origin: str = ""
    notes: tuple[Note, ...] = ()

    @property
    def original(self) -> str:
        """The user's original request."""
        return self.origin or self.text

    def prompt(self) -> str:
        """Return the prompt for the agent: the text, then each note in its own block.

        Quoted lines all start with "> ", so that nothing in them can imitate one of Podium's headings. A
        line in the text that looks like such a heading gets a backslash. The headings say that they are not part of
        the conversation with the user, because small models repeat them otherwise.
        """
        return "\n\n".join(
            [
                escape_headings(self.text, _BLOCK) if "[" in self.text else self.text,
                *(f"[context for you only: {note.title}]{quote_lines(note.text)}" for note in self.notes),
            ]
        )


class Part(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One agent's contribution to an answer, or the reason why the contribution is missing."""

    agent: str
    outcome: Outcome
    text: str = ""
    failure: Failure | None = None


class Answer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent's answer."""

    text: str
    data: Any = None
    parts: tuple[Part, ...] = ()


LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""All characters that some programs treat as line breaks."""

_BLOCK = r"\[(?:context:|context for you only:|message from )"


def escape_headings(text: str, heading: str) -> str:
    """Put a backslash before each line that looks like one of Podium's headings, in upper or lower case."""
    pattern = rf"(^|[{LINE_BREAKS}])([^\S{LINE_BREAKS}]*)({heading})"
    return re.sub(pattern, r"\1\2\\\3", text, flags=re.IGNORECASE)


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, with the replacement character."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def quote_lines(text: str) -> str:
    """Return the lines of `text`, each preceded by a line break and the prefix "> "."""
    return "".join(f"\n> {line}" for line in text.splitlines())
