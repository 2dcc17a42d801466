"""Choose which of an agent's models is called next: the first that is neither missing nor at its limit.

After a crash, the attempts on the timeline determine the choice; the limits known to this process only help avoid
futile calls.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Protocol

from ...values.event import CallFailed
from .provider_throttle import ProviderThrottle


class Candidate(Protocol):
    """A model that can be called.

    If `is_for_limits` is true, it is used only when an earlier model is at its limit. If `is_for_unknown` is true, it
    is used only when the provider of an earlier model has no such model.
    """

    @property
    def name(self) -> str: ...

    @property
    def provider(self) -> str: ...

    @property
    def throttle(self) -> ProviderThrottle: ...

    @property
    def is_for_limits(self) -> bool: ...

    @property
    def is_for_unknown(self) -> bool: ...


class ModelCandidates:
    """The models of one agent, in the order they are tried."""

    def __init__(self, models: Sequence[Candidate]) -> None:
        self._models = models
        self._unknown: set[int] = set()
        """The indices of models that their providers do not offer. These models are not tried again."""

    def find_first(self) -> int:
        """Return the index of the model to try first. If all models are at their limits, this is the first model."""
        known = [place for place in range(len(self._models)) if place not in self._unknown]
        limited = self._find_limited()
        return next(self._iter_allowed(known, limited), known[0] if known else 0)

    def find_recorded(self, outcome: CallFailed, expected: int) -> int:
        """Return the index of the model whose failure is on the timeline, or `expected` if that model is not listed."""
        found = [
            place
            for place, model in enumerate(self._models)
            if model.name == outcome.model and outcome.provider in ("", model.provider)
        ]
        return expected if expected in found or not found else found[0]

    def mark_unknown(self, place: int) -> None:
        """Record that the provider of a model does not offer it."""
        self._unknown.add(place)

    def find_next(self, failed: int, limited: dict[int, float]) -> int | None:
        """Return the index of the model to try next, or None if no model is left.

        `failed` is the index of the model whose call failed. `limited` maps the index of each model that reached its
        limit during this call to the time when the limit resets. Other models that are known to be at their limits are
        added to `limited`. If only such models are left, return the index of the one whose limit resets first.
        """
        for place, until in self._find_limited().items():
            limited.setdefault(place, until)
        left = [place for place in range(failed + 1, len(self._models)) if place not in self._unknown]
        following = next(self._iter_allowed(left, limited), None)
        if following is not None or not limited:
            return following
        waiting = {place: until for place, until in limited.items() if place not in self._unknown}
        return min(waiting, key=lambda place: (waiting[place], place), default=None)

    def _find_limited(self) -> dict[int, float]:
        now = time.time()
        found = {place: model.throttle.find_limit(model.name).until for place, model in enumerate(self._models)}
        return {place: until for place, until in found.items() if until > now}

    def _iter_allowed(self, places: Sequence[int], limited: dict[int, float]) -> Iterator[int]:
        for place in places:
            model = self._models[place]
            if place in limited or (model.is_for_limits and not limited):
                continue
            if self._unknown or not model.is_for_unknown:
                yield place
