"""The state of a run for the page: one document, with all changes to it.

The document is the state as JSON. Each entry of the run changes it; see `core/edits.py` for the format of the changes.
A client that has the document and applies the changes needs to know nothing about events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import field

from ...core.edits import RecordedEdits
from ...values.event import Entry
from . import RunState
from .activity import RunActivity
from .tree import RunView


class PageState(RunState):
    """The state of a run after the entry with the number `view.seq`."""

    view: RunView = field(default_factory=RunView)
    activity: RunActivity = field(default_factory=RunActivity)

    @property
    def seq(self) -> int:
        """The sequence number of the last applied entry."""
        return self.view.seq

    def apply_all(self, entries: Iterable[Entry]) -> Iterator[bytes]:
        """Apply the next entries and yield, for each of them, its changes as a JSON list.

        The changes of a run's first entry are the whole document.
        """
        edits = RecordedEdits()
        for entry in entries:
            is_first = self.seq == 0
            self.apply(entry, edits)
            changes = edits.take_changes()
            yield b'[[[],"set",%s]]' % encode_state(self) if is_first else changes


encode_state = msgspec.json.Encoder().encode
"""Encodes a state as JSON, which can be stored."""
decode_state = msgspec.json.Decoder(PageState).decode
"""Decodes a stored state. It can be used as if all entries up to its sequence number had been applied."""
