"""Validate, convert and read agent names, and suggest names for a mistyped one."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence

from ..values.field_reader import FieldReader
from ..values.key_schema import STRING, STRINGS, accepts
from ..values.located_yaml import quote_text
from ..values.plain_text import join_words

NAME_RULE = "lower-case ASCII letters, digits and hyphens, at most 64 characters, not starting with a hyphen"
MAX_NAME_LENGTH = 64
MAX_SUGGESTIONS = 8
# If there are more names than this, compare only alphabetical neighbours: a large roster with many
# wrong names would otherwise take minutes.
MANY = 400
NEIGHBOURS = 20

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_SOURCES = ("builtin:", "user:", "repo:")


def is_agent_name(text: str) -> bool:
    """Return whether `text` is a valid agent name."""
    return _NAME.fullmatch(text) is not None


def to_agent_name(text: str) -> str:
    """Convert `text` to an agent name: make it lower case, replace invalid characters with hyphens, and shorten it.

    The result is empty if `text` contains no valid character.
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[: MAX_NAME_LENGTH + 1].strip("-")[:MAX_NAME_LENGTH].rstrip("-")


def make_unique_name(name: str, is_taken: Callable[[str], bool], *, longest: int | None = None) -> str:
    """Return `name`. If it is taken, append a number, and shorten the result to at most `longest` characters."""
    number, free = 1, name
    while is_taken(free):
        number += 1
        end = f"-{number}"
        start = name if longest is None else name[: longest - len(end)].rstrip("-")
        free = f"{start}{end}"
    return free


@accepts(STRING)
def read_agent_name(reader: FieldReader) -> str:
    """Return the agent name in this field. Report an error if the field is empty or not a string."""
    if reader.text:
        return resolve_agent_name(reader, reader.text)
    reader.report_expected("the name of one agent")
    return ""


@accepts(STRINGS)
def read_agent_names(reader: FieldReader) -> tuple[str, ...]:
    """Return a list of agent names without duplicates."""
    words = [resolve_agent_name(reader, word) for word in reader.read_comma_list("a list of agent names")]
    names = tuple(dict.fromkeys(words))
    if len(names) < len(words):
        twice = next(name for name, count in Counter(words).items() if count > 1)
        reader.add_warning(f"{quote_text(twice)} is listed more than once; list it once")
    return names


def resolve_agent_name(reader: FieldReader, word: str) -> str:
    """Return `word`, converted to an agent name if it is a display name in another program's file."""
    if reader.context.foreign and not is_agent_name(word) and not word.startswith(_SOURCES):
        return to_agent_name(word) or word
    return word


def sort_by_similarity(name: str, known: Sequence[str]) -> list[str]:
    """Sort names by similarity to `name`. `known` must be sorted; if it is long, return only neighbours of `name`."""
    if len(known) > MANY:
        place = bisect_left(known, name)
        known = known[max(0, place - NEIGHBOURS) : place + NEIGHBOURS]
    from difflib import SequenceMatcher  # imported here to keep start-up fast: needed only if a name is not found

    matcher = SequenceMatcher(b=name, autojunk=False)

    def score_distance(other: str) -> float:
        matcher.set_seq1(other)
        return -matcher.ratio()

    return sorted(known, key=score_distance)


def suggest_names(name: str, known: Sequence[str], *, but: str = "") -> str:
    """Return a phrase that lists existing names, most similar first: `available: builder, reviewer and 3 more`.

    `known` must be sorted. `but` is a name to leave out: the name of the agent that contains the reference.
    """
    place = bisect_left(known, but)
    count = len(known) - (known[place : place + 1] == [but])
    if not count:
        return "none are available; create one as .podium/agents/NAME.md"
    shown = [other for other in sort_by_similarity(name, known) if other != but][:MAX_SUGGESTIONS]
    if count > len(shown):
        shown.append(f"{count - len(shown)} more")
    return f"available: {join_words(shown)}"
