"""Entries as the API sends them: as they are stored, and with their sentence in the field `text`."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Raw, UnsetType, json

from ...values.errors import StoreCorrupt
from ...values.event import Entry, decode_entry
from ...views.event_text import STREAMED_KINDS, describe_entry


class SentEntry(Entry, frozen=True, kw_only=True):
    """An entry with its sentence. Streamed text has none; nor has an entry that a newer version of Podium wrote."""

    text: str | UnsetType = UNSET


StoredEntry = Annotated[Raw, SentEntry]
StoredEntries = Annotated[Raw, list[SentEntry]]
"""An entry, or a list of entries, that is sent as it is stored."""


def add_sentence(line: bytes, kind: str, *, user: str) -> bytes:
    """Return a stored entry with its sentence. Streamed text has none; nor has an entry that cannot be decoded.

    `user` is the name of the user on this machine.
    """
    if kind in STREAMED_KINDS:
        return line  # without decoding it: most entries of a live run are streamed text
    try:
        text = describe_entry(decode_entry(line), user=user)
    except StoreCorrupt:
        return line  # clients can still show its fields, for example if a newer release wrote it
    # A host of a fleet may have written white space after the entry.
    return line if text is None else b'%s,"text":%s}' % (line.rstrip().removesuffix(b"}"), json.encode(text))
