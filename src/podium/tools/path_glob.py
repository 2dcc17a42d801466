"""Patterns over paths, as people write them: `*.py`, `src/**/*.{ts,tsx}`, `docs/`."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate

from ..core.gate import InvalidCall

ALTERNATIVES = 100
DEEPEST = 50


def compile_glob(pattern: str) -> Callable[[str], bool]:
    """Whether a relative path matches. A pattern without a slash is about names, at any depth.

    Matching takes time in proportion to pattern and path, whatever the pattern is.
    """
    ways = [_compile_parts(one) for one in _expand_braces(pattern)]

    def matches_path(path: str) -> bool:
        names = path.split("/")
        return any(_matches_parts(way, names) for way in ways)

    return matches_path


def _compile_parts(pattern: str) -> list[re.Pattern[str] | None]:
    """One expression for each name; None for `**`, which is any number of names."""
    names = [name for name in pattern.removeprefix("./").split("/") if name != "."]
    if names and names[-1] == "":
        names[-1] = "**"
    if len(names) == 1:
        names.insert(0, "**")
    if len(names) > DEEPEST:
        raise InvalidCall(f"The pattern has more than {DEEPEST} slashes; give a shorter one.")
    return [None if name == "**" else re.compile(translate(name)) for name in names if name]


def _matches_parts(parts: list[re.Pattern[str] | None], names: list[str]) -> bool:
    reached = {0}
    """How many parts may be used up by the names so far."""
    for name in names:
        reached = _skip_stars(parts, reached)
        reached = {
            at if part is None else at + 1
            for at in reached
            if at < len(parts) and ((part := parts[at]) is None or part.match(name))
        }
    return len(parts) in _skip_stars(parts, reached)


def _skip_stars(parts: list[re.Pattern[str] | None], reached: set[int]) -> set[int]:
    found = set(reached)
    for at in reached:
        while at < len(parts) and parts[at] is None:
            at += 1
            found.add(at)
    return found


def _expand_braces(pattern: str) -> list[str]:
    """The patterns that one with braces stands for."""
    found, open_ones = [], [pattern]
    while open_ones:
        one = open_ones.pop()
        braces = re.search(r"\{([^{}]*,[^{}]*)\}", one)
        if braces is None:
            found.append(one)
        else:
            open_ones += [one[: braces.start()] + word + one[braces.end() :] for word in braces[1].split(",")]
        if len(found) + len(open_ones) > ALTERNATIVES:
            raise InvalidCall(f"The pattern stands for more than {ALTERNATIVES} patterns; use fewer braces.")
    return found
