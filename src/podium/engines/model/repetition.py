"""Detect a reply that repeats itself endlessly, while it is streamed."""

from __future__ import annotations

from collections.abc import Sequence

CHECK_EVERY = 500
"""How many new characters must arrive before a reply is checked again. Each check takes time."""
LEAST_REPEATS = 6
LEAST_CHARACTERS = 2_500
"""With these limits, a reply is stopped before it has repeated itself for 1,000 tokens."""
LEAST_PIECES = 3
"""The minimum length of repeated text, as a multiple of the length of the last piece of the stream.

Because of this minimum, a reply that arrives in one piece is never treated as an endless repetition. Such a reply is
already complete, so there is nothing to stop.
"""
LONGEST_UNIT = 500
"""The maximum length, in characters, of a repeated unit that can be detected."""
_WINDOW = LONGEST_UNIT * LEAST_REPEATS + LONGEST_UNIT
_PROBES = (24, 240)
"""How many characters at the end of the text are used to find the repeated unit.

The distance from these characters to their previous occurrence is the length of the unit. Two numbers are tried,
because a long unit may itself end in a short repetition.
"""
MOST_PIECES = 5_000
"""How many pieces at the end of a reply are checked."""


def count_endless(pieces: Sequence[str]) -> int:
    """Return the length of the endless repetition at the end of a streamed reply, or 0 if there is none."""
    if not pieces:
        return 0
    # Large pieces need a larger window: the repetition must be several times as long as a piece.
    window = max(_WINDOW, (LEAST_PIECES + 1) * len(pieces[-1]) + LONGEST_UNIT)
    repeating = count_repeating("".join(pieces[-MOST_PIECES:])[-window:])
    return repeating if repeating >= LEAST_PIECES * len(pieces[-1]) else 0


def count_repeating(text: str) -> int:
    """Return the length of the repetition at the end of the text, or 0 if it does not end in a long repetition."""
    if len(text) < LEAST_CHARACTERS:
        return 0
    return max(_count_repeats_of(text, _find_unit(text, probe)) for probe in _PROBES)


def _count_repeats_of(text: str, unit: int) -> int:
    """Return how many characters at the end of the text repeat a unit of length `unit`.

    If the repetition is too short, return 0. The first occurrence of the unit is not counted.
    """
    if not unit:
        return 0
    repeating = unit
    while repeating < len(text) and text[-repeating - 1] == text[-repeating - 1 + unit]:
        repeating += 1
    is_endless = repeating >= LEAST_CHARACTERS and repeating >= unit * LEAST_REPEATS
    return repeating - unit if is_endless else 0


def _find_unit(text: str, probe: int) -> int:
    """Return the length of the unit that may be repeated at the end of the text, or 0 if there is none.

    The length is the distance from the last `probe` characters of the text to their previous occurrence.
    """
    place = text.rfind(text[-probe:], 0, len(text) - 1)
    unit = len(text) - probe - place
    return unit if place >= 0 and unit <= LONGEST_UNIT else 0
