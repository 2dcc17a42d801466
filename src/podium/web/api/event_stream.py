"""Encode the stream of entries as server-sent events.

An `entries` event has the entries of the runs that the client follows, in order. A `changes` event names the other
runs in which something happened, with the kinds of their new entries, so that clients can reload lists. A `mail` event
says that somebody sent a run a message or an answer, which the run may not have received yet. The id of an event is a
cursor: a client that reconnects with it as `Last-Event-ID` misses nothing.

A client is registered while it has a stream open. The tabs of a browser share one stream, so they count as one client.
If another tab continues the stream, or the stream is opened again for another run, the client stays the same, so the
deadlines of requests do not restart.
"""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import msgspec
from anyio import move_on_after, sleep, to_thread

from ...store.entry_feed import EntryFeed, FeedRow, unknown_cursor
from ...store.store_clients import register_client
from ...values.store_address import StoreAddress
from .entry_hub import EntryHub

GRACE_SECONDS = 3.0
"""How long a client stays registered after its stream has closed, to give it time to open another stream."""


class ConnectedClients:
    """The clients of one server. Connections with the same token count as one client."""

    def __init__(self, store: StoreAddress) -> None:
        self._store = store
        self._streams: Counter[str] = Counter()
        self._registered: dict[str, ExitStack] = {}
        self._removals: dict[str, TimerHandle] = {}

    @contextmanager
    def connect(self, token: str) -> Iterator[None]:
        """Register a client for the duration of the block and a short grace period.

        Blocks with the same token share one registration. It ends after the last of these blocks.
        """
        self._streams[token] += 1
        if token in self._removals:
            self._removals.pop(token).cancel()
        try:
            if token not in self._registered:
                registration = ExitStack()
                registration.enter_context(register_client(self._store))
                self._registered[token] = registration
            yield
        finally:
            self._streams[token] -= 1
            if not self._streams[token]:
                self._removals[token] = get_running_loop().call_later(GRACE_SECONDS, self._remove, token)

    def _remove(self, token: str) -> None:
        del self._removals[token], self._streams[token]
        if token in self._registered:
            self._registered.pop(token).close()

    def close(self) -> None:
        """Remove all clients."""
        while self._registered:
            self._registered.popitem()[1].close()


HEARTBEAT_SECONDS = 15.0
GAP_SECONDS = 0.03
"""How long a stream waits after sending events. Entries that arrive during this time are sent together."""
LARGEST_EVENT = 512 * 1024
"""The size in bytes above which entries that were read together are split into several events."""


async def stream_entries(
    hub: EntryHub,
    position: int,
    *,
    runs: Collection[str] | None,
    client: AbstractContextManager[None],
    may_go_on: Callable[[], bool],
) -> AsyncIterator[bytes]:
    """Yield the events after a position, until the client disconnects or its token is revoked.

    `runs` contains the ids of the runs whose entries are sent; None means all. `client` is a context manager that stays
    open as long as the stream. `may_go_on` returns whether the token is still valid.
    """
    with client:
        async for event in _iter_events(hub, position, runs):
            if not may_go_on():
                return
            yield event


async def _iter_events(hub: EntryHub, position: int, runs: Collection[str] | None) -> AsyncIterator[bytes]:
    yield b": connected\n\n"
    mail = hub.last_mail
    hub.streams += 1
    try:
        while not hub.is_closed:
            with move_on_after(HEARTBEAT_SECONDS) as silence:
                await hub.wait_news(position, mail)
            if silence.cancelled_caught:
                yield b": heartbeat\n\n"
                continue
            if mail != hub.last_mail:
                mail = hub.last_mail
                yield _encode_event("mail", b"{}")
            if rows := await hub.read_after(position):
                for event in _encode_rows(rows, runs):
                    yield event
                position = rows[-1].position
            await sleep(GAP_SECONDS)
    finally:
        hub.streams -= 1


def _encode_rows(rows: list[FeedRow], runs: Collection[str] | None) -> list[bytes]:
    """Return the events for these rows: first the changes in other runs, then the entries of the runs in `runs`.

    If the entries are large, they are split into several events. Only the last event has a cursor, so a client that
    loses the connection before that event misses nothing.
    """
    lines: list[bytes] = []
    changed: dict[str, set[str]] = {}
    for row in rows:
        if runs is None or row.run in runs:
            lines.append(row.line)
        else:
            changed.setdefault(row.run, set()).add(row.kind)
    events: list[bytes] = []
    if changed:
        kinds = {run: sorted(seen) for run, seen in changed.items()}
        events.append(_encode_event("changes", msgspec.json.encode(kinds)))
    events += [_encode_event("entries", b"[" + b",".join(some) + b"]") for some in _split_lines(lines)]
    return [*events[:-1], b"id: %s\n%s" % (rows[-1].cursor.encode(), events[-1])]


def _split_lines(lines: list[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines in lists of at most LARGEST_EVENT bytes. A longer line is a list of its own."""
    some: list[bytes] = []
    size = 0
    for line in lines:
        if some and size + len(line) > LARGEST_EVENT:
            yield some
            some, size = [], 0
        some.append(line)
        size += len(line)
    if some:
        yield some


def _encode_event(name: str, data: bytes) -> bytes:
    """Return one server-sent event. `data` is JSON without line breaks."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)


async def find_position(store: StoreAddress, hub: EntryHub, cursor: str | None) -> int:
    """Return the position of a client's cursor, or the end of the store if there is no cursor.

    An empty cursor means the beginning of the store. Raise Mistake if the cursor is unknown.
    """
    if cursor is None:
        return hub.end

    def look_up() -> int:
        if not store.exists():
            if cursor:
                raise unknown_cursor(cursor)
            return 0
        with EntryFeed(store) as feed:
            return feed.find_position(cursor)

    return await to_thread.run_sync(look_up)
