"""Journal rows: how entries are stored, the hash chain over them, and the lease required to write them."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple, Protocol

import msgspec
from msgspec import Struct

from ..values.event import ActionBegan, Event, decode_entry, event_kind
from ..values.json import Json

GENESIS = b"\0" * 32


class JournalRow(NamedTuple):
    """A stored entry. `line` is the entry as JSON; `hash` covers it and all lines before it."""

    run: str
    seq: int
    epoch: int
    kind: str
    key: str
    line: bytes
    hash: bytes


class Lease(Protocol):
    """The right to write to one run, until another process takes over the run."""

    @property
    def epoch(self) -> int: ...

    def append(self, row: JournalRow, *, survives_power_loss: bool, mail: int | None) -> None:
        """Queue a row. With `mail`, the same transaction marks the mailbox message with that number as taken."""
        ...

    async def wait_written(self, *, is_alone: bool = True) -> None:
        """Wait until all queued rows are written; raise an error if writing fails.

        `is_alone` is False if other tasks of the run may soon wait for a write too.
        """
        ...


def chain_hash(previous: bytes, line: bytes) -> bytes:
    """Return the hash of `line`, given the hash of the previous line."""
    return sha256(previous + line).digest()


def must_survive_power_loss(event: Event) -> bool:
    """Return whether an event must be on disk before anything acts on it."""
    return event.survives_power_loss and not (isinstance(event, ActionBegan) and event.is_repeatable)


def find_chain_break(rows: Iterable[JournalRow]) -> str | None:
    """Describe the first entry that breaks the hash chain. Return None if all entries are intact.

    Every change, removal, insertion and swap is detected, with two exceptions: entries removed from the very end, and
    changes after which all later hashes were recomputed.
    """
    previous, last_seq, epoch = GENESIS, 0, 0
    for row in rows:
        if row.seq != last_seq + 1:
            return f"entry {last_seq + 1} is missing: entry {row.seq} follows entry {last_seq}"
        if chain_hash(previous, row.line) != row.hash:
            return f"entry {row.seq} was changed after it was written"
        entry = decode_entry(row.line)
        if (entry.run, entry.seq, entry.key, event_kind(entry.event)) != (row.run, row.seq, row.key, row.kind):
            return f"the columns of entry {row.seq} do not match its content"
        if row.epoch < epoch:
            return f"entry {row.seq} was written by a process that no longer owned the run"
        previous, last_seq, epoch = row.hash, row.seq, row.epoch
    return None


def compute_digest(*parts: Struct | Json) -> str:
    """Return a short hash of plain values, the same in every process and release."""
    return sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:16]
