"""Detect whether a loop keeps producing the same text."""

from __future__ import annotations

from collections import deque

IN_A_ROW = 2
"""Number of repetitions in a row that count as a stall. A single repetition is a warning."""


class StallDetector:
    """Compares each text with earlier ones, and counts repetitions.

    A text counts as a repetition if it equals one of the last `window` texts, if its word similarity to the previous
    text is above `threshold`, or if it is blank.
    """

    def __init__(self, window: int = 5, threshold: float = 0.9) -> None:
        self.window = window
        self.threshold = threshold
        self._recent: deque[str] = deque(maxlen=window)
        self.reset()

    def reset(self) -> None:
        """Discard all earlier texts, for example after a pause."""
        self._recent.clear()
        self._words: frozenset[str] | None = None
        self.consecutive = 0
        self.similarity = 0.0

    @property
    def is_stalled(self) -> bool:
        """Whether the last two texts were both repetitions."""
        return self.consecutive >= IN_A_ROW

    def check(self, text: str) -> bool:
        """Return whether this text is a repetition, and store it for later comparisons."""
        words = frozenset(text.split())
        self.similarity = 0.0 if self._words is None else _jaccard_similarity(self._words, words)
        repeats = not words or text in self._recent or self.similarity > self.threshold
        self.consecutive = self.consecutive + 1 if repeats else 0
        self._recent.append(text)
        self._words = words
        return repeats


def _jaccard_similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the size of the intersection divided by the size of the union. Two empty sets have similarity 1."""
    together = len(one | other)
    return len(one & other) / together if together else 1.0
