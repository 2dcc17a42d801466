"""Notice a reply that repeats itself without end, while it is streamed."""

from __future__ import annotations

CHECK_EVERY = 1_000
"""After how many characters the end of a reply is looked at again."""
LEAST_REPEATS = 12
LEAST_CHARACTERS = 3_000
LEAST_PIECES = 8
"""A repetition must be this many times as long as the last piece: a reply that came at once has ended anyway."""
LONGEST_UNIT = 500
"""The longest text whose repetition is noticed, in characters."""
_WINDOW = LONGEST_UNIT * LEAST_REPEATS + LONGEST_UNIT
_PROBE = 24


class RepetitionDetector:
    """Follows the text of one reply. Looking at its end costs nothing until there are many new characters."""

    __slots__ = ("_new", "_next_check", "_tail", "size")

    def __init__(self) -> None:
        self.size = 0
        self._tail = ""
        self._new: list[str] = []
        self._next_check = LEAST_CHARACTERS

    def add_text(self, text: str) -> int:
        """Add a piece of the reply. Return the length of the text that repeats at its end, or 0 if none does."""
        self._new.append(text)
        self.size += len(text)
        if self.size < self._next_check:
            return 0
        self._next_check = self.size + CHECK_EVERY
        self._tail = (self._tail + "".join(self._new))[-_WINDOW:]
        self._new.clear()
        repeating = count_repeating(self._tail)
        return repeating if repeating >= LEAST_PIECES * len(text) else 0


def count_repeating(text: str) -> int:
    """Return how many characters at the end only repeat the text before them; 0 unless there are many repetitions."""
    unit = _find_unit(text) if len(text) >= LEAST_CHARACTERS else 0
    if not unit:
        return 0
    repeating = unit
    while repeating < len(text) and text[-repeating - 1] == text[-repeating - 1 + unit]:
        repeating += 1
    is_endless = repeating >= LEAST_CHARACTERS and repeating >= unit * LEAST_REPEATS
    return repeating - unit if is_endless else 0


def _find_unit(text: str) -> int:
    """Return the length of the shortest text whose repetition could make up the end of this text, or 0."""
    probe = text[-_PROBE:]
    place = text.rfind(probe, 0, len(text) - 1)
    unit = len(text) - _PROBE - place
    return unit if place >= 0 and unit <= LONGEST_UNIT else 0
