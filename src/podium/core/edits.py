"""Change the state of a run and, for those who follow it, record every change.

A change is a list that says how the state, encoded as a JSON document, becomes the next one. Its first item is the
place, a list of keys:

- `[place, "set", {...}]` sets fields of the object at this place;
- `[place, "add", value]` appends a text to the text, or items to the list, at this place;
- `[place, "drop"]` removes the value at this place.

The parts of a state change themselves only through `Edits`, so that no change has to be described twice.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol

import msgspec

Place = tuple[str, ...]


class StatePart(Protocol):
    """A part of a state."""

    @property
    def place(self) -> Place:
        """The keys that lead to this part in the document."""


class Edits:
    """Changes parts of a state, without recording the changes."""

    def set(self, part: StatePart, **fields: Any) -> None:
        """Set fields of a part."""
        for name, value in fields.items():
            setattr(part, name, value)

    def add_text(self, part: StatePart, name: str, text: str) -> None:
        """Append a text to a field."""
        whole: str = getattr(part, name)
        setattr(part, name, "")  # with a single reference to it, Python appends to the text without copying it
        whole += text
        setattr(part, name, whole)

    def add(self, part: StatePart, name: str, *items: Any) -> None:
        """Append items to a list."""
        getattr(part, name).extend(items)

    def replace(self, part: StatePart, name: str) -> None:
        """Note that the value of a field, which is no part of its own, has changed in itself."""

    def put(self, part: StatePart, name: str, key: Hashable, value: Any) -> None:
        """Add an item to a mapping, or replace it."""
        getattr(part, name)[key] = value

    def drop(self, part: StatePart, name: str, key: Hashable) -> None:
        """Remove an item from a mapping, if it is there."""
        getattr(part, name).pop(key, None)


EDITS = Edits()
"""Changes parts without recording it."""


class RecordedEdits(Edits):
    """Changes parts of a state and records the changes in `changes`, each as JSON.

    A change is encoded at once, because the values in it may change again.
    """

    def __init__(self) -> None:
        self.changes: list[bytes] = []

    def take_changes(self) -> bytes:
        """Return the recorded changes as a JSON list, and begin a new list."""
        changes, self.changes = self.changes, []
        return b"[" + b",".join(changes) + b"]"

    def _record(self, *change: Any) -> None:
        self.changes.append(msgspec.json.encode(change))

    def set(self, part: StatePart, **fields: Any) -> None:
        changed = {name: value for name, value in fields.items() if getattr(part, name) != value}
        if changed:
            super().set(part, **changed)
            self._record(part.place, "set", changed)

    def add_text(self, part: StatePart, name: str, text: str) -> None:
        super().add_text(part, name, text)
        self._record((*part.place, name), "add", text)

    def add(self, part: StatePart, name: str, *items: Any) -> None:
        super().add(part, name, *items)
        self._record((*part.place, name), "add", items)

    def replace(self, part: StatePart, name: str) -> None:
        self._record(part.place, "set", {name: getattr(part, name)})

    def put(self, part: StatePart, name: str, key: Hashable, value: Any) -> None:
        super().put(part, name, key, value)
        self._record((*part.place, name), "set", {key: value})

    def drop(self, part: StatePart, name: str, key: Hashable) -> None:
        if key in getattr(part, name):
            super().drop(part, name, key)
            self._record((*part.place, name, key), "drop")
