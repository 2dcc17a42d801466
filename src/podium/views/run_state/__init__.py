"""The state of a run, built from its timeline.

It is made of parts. Each part names the kinds of entries that it reads, and can be stored as JSON after any entry and
continued from there. A look at a run builds a state that has only the parts that it shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Self

from msgspec import Struct, structs

from ...core.edits import EDITS, Edits, Place
from ...values.event import Entry


class RunState(Struct):
    """A part of a run's state, or the parts that one look needs, built by applying the run's entries in order.

    A look has a field for each of its parts.
    """

    PLACE: ClassVar[Place] = ()
    KINDS: ClassVar[tuple[str, ...]] = ()
    """The kinds of entries that it needs; empty if it needs all."""

    @property
    def place(self) -> Place:
        """The place in the document."""
        return self.PLACE

    @classmethod
    def from_entries(cls, entries: Iterable[Entry]) -> Self:
        """Build the state from the first entries of a run."""
        state = cls()
        for entry in entries:
            state.apply(entry)
        return state

    def apply(self, entry: Entry, edits: Edits = EDITS) -> None:
        """Apply the next entry."""
        for part in structs.astuple(self):
            part.apply(entry, edits)
