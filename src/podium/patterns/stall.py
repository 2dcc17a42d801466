"""Stalls: whether a loop still says something new."""

from __future__ import annotations

from collections import deque

IN_A_ROW = 2
"""So many repetitions in a row are a stall; a single one is a warning."""


class StallDetector:
    """Compares each text with those before it.

    A text repeats when it is one of the last `window` texts, when its words are more like those of
    the previous text than `threshold`, or when it is blank.
    """

    def __init__(self, window: int = 5, threshold: float = 0.9) -> None:
        self.window = window
        self.threshold = threshold
        self._recent: deque[str] = deque(maxlen=window)
        self.reset()

    def reset(self) -> None:
        """Forget everything, as after a pause."""
        self._recent.clear()
        self._words: frozenset[str] | None = None
        self.consecutive = 0
        self.similarity = 0.0

    @property
    def is_stalled(self) -> bool:
        """Whether the texts have repeated twice in a row."""
        return self.consecutive >= IN_A_ROW

    def check(self, text: str) -> bool:
        """Whether this text repeats; it is then one of those that later texts are compared with."""
        words = frozenset(text.split())
        self.similarity = 0.0 if self._words is None else jaccard_similarity(self._words, words)
        repeats = not words or text in self._recent or self.similarity > self.threshold
        self.consecutive = self.consecutive + 1 if repeats else 0
        self._recent.append(text)
        self._words = words
        return repeats


def jaccard_similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """The share of all words that both have; two texts without words are alike."""
    together = len(one | other)
    return len(one & other) / together if together else 1.0
