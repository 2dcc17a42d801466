"""Names of agents: which are good, how others become good, and which are near a mistyped one."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from difflib import SequenceMatcher

NAME_RULE = "lower-case letters, digits and hyphens, at most 64, not beginning with a hyphen"
MAX_NAME_LENGTH = 64
MAX_SUGGESTIONS = 8
# Among more names than this, likeness is only looked for in the alphabetical neighbourhood:
# a large roster with many mistakes would otherwise take minutes.
MANY = 400
NEIGHBOURS = 20

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


def is_agent_name(text: str) -> bool:
    """Whether `text` can be an agent's name."""
    return _NAME.fullmatch(text) is not None


def to_agent_name(text: str) -> str:
    """`text` as a name: lower case, every run of other characters one hyphen; empty when nothing is left."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[: MAX_NAME_LENGTH + 1].strip("-")[:MAX_NAME_LENGTH].rstrip("-")


def sort_by_similarity(name: str, known: Sequence[str]) -> list[str]:
    """The sorted `known` names, those most like `name` first; only its neighbours when there are very many."""
    if len(known) > MANY:
        place = bisect_left(known, name)
        known = known[max(0, place - NEIGHBOURS) : place + NEIGHBOURS]
    matcher = SequenceMatcher(b=name, autojunk=False)

    def score_distance(other: str) -> float:
        matcher.set_seq1(other)
        return -matcher.ratio()

    return sorted(known, key=score_distance)


def suggest_names(name: str, known: Sequence[str], *, but: str = "") -> str:
    """What exists instead of `name`, as the end of a sentence: `there are builder, reviewer and 3 more`.

    `known` is sorted; `but` is left out, since whoever asks cannot want itself.
    """
    place = bisect_left(known, but)
    count = len(known) - (known[place : place + 1] == [but])
    if not count:
        return "there are no others; write one as .podium/agents/NAME.md"
    shown = [other for other in sort_by_similarity(name, known) if other != but][:MAX_SUGGESTIONS]
    if count > len(shown):
        shown.append(f"{count - len(shown)} more")
    return f"there {'is' if count == 1 else 'are'} {join_words(shown)}"


def join_words(words: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f"{', '.join(words[:-1])} {last} {words[-1]}" if len(words) > 1 else "".join(words)
