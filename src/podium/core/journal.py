"""The journal's rows: what is written for each entry, the hash chain over them, and the lease that writes them."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

import msgspec

from ..values.event import decode_entry, event_kind

GENESIS = b"\0" * 32


class JournalRow(NamedTuple):
    """An entry as it is stored. `line` is the entry in JSON; `hash` covers it and all lines before it."""

    run: str
    seq: int
    epoch: int
    kind: str
    key: str
    line: bytes
    hash: bytes


class Lease(Protocol):
    """The right to write to one run, as long as nobody else has taken it over."""

    @property
    def epoch(self) -> int: ...

    def append(self, row: JournalRow, *, survives_power_loss: bool, mail: int | None) -> None:
        """Queue a row. With `mail`, the letter of that number is taken in the same transaction."""
        ...

    async def wait_written(self, *, is_alone: bool = True) -> None:
        """Return when everything queued so far is written; raise when it could not be.

        Where the caller is not alone, others of the run may want the same in a moment.
        """
        ...


def chain_hash(previous: bytes, line: bytes) -> bytes:
    """The hash of a line that follows the line with the hash `previous`."""
    return sha256(previous + line).digest()


def find_chain_break(rows: Iterable[JournalRow]) -> str | None:
    """Where a timeline is not what was once written: one sentence, or None when it is whole.

    Every change, removal, insertion and swap shows, except that entries at the very end are gone.
    """
    previous, last_seq, epoch = GENESIS, 0, 0
    for row in rows:
        if row.seq != last_seq + 1:
            return f"entry {last_seq + 1} is missing: entry {row.seq} follows entry {last_seq}"
        if chain_hash(previous, row.line) != row.hash:
            return f"entry {row.seq} is not what was written there"
        entry = decode_entry(row.line)
        if (entry.run, entry.seq, entry.key, event_kind(entry.event)) != (row.run, row.seq, row.key, row.kind):
            return f"entry {row.seq} is filed under another place than its own"
        if row.epoch < epoch:
            return f"entry {row.seq} was written by a process that had lost the run"
        previous, last_seq, epoch = row.hash, row.seq, row.epoch
    return None


def compute_digest(*parts: Any) -> str:
    """A short fingerprint of plain values, the same in every process and release."""
    return sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:16]
