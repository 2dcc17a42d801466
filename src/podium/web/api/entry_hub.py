"""Read each new entry of the store once, and share it with all streams.

The hub keeps the newest entries in memory. A stream has only a position: it reads new entries from memory, or
from the store if it is far behind. So a slow stream needs no buffer and delays neither the other streams nor the
agents.
"""

from __future__ import annotations

from asyncio import Event as Flag
from bisect import bisect_right
from collections import deque

from anyio import sleep, to_thread, wait_readable

from ...store.entry_feed import EntryFeed, FeedRow
from ...store.wakeup import open_wakeup, send_wakeup
from ...values.store_address import StoreAddress
from .sent_entry import add_sentence

PAGE = 1000
MOST_KEPT = 4000
LARGEST_KEPT = 8 * 1024 * 1024
"""The maximum number of entries in memory, and their maximum total size in bytes."""
PAUSE_SECONDS = 0.02
"""The minimum time between two reads, so that many small transactions are read together."""


class EntryHub:
    """The newest entries of a store as they are sent, for all streams of this server."""

    def __init__(self, store: StoreAddress, user: str) -> None:
        self._store = store
        self._user = user
        self._rows: deque[FeedRow] = deque()
        self._size = 0
        self._start = 0
        """The position after which all entries are in memory."""
        self._end = 0
        self._news = Flag()
        self.is_closed = False
        self.streams = 0
        """How many streams are connected."""
        self.last_mail = 0
        """The number of the newest message in a mailbox."""

    @property
    def end(self) -> int:
        """The position of the newest entry that the hub has read."""
        return self._end

    async def follow_store(self) -> None:
        """Read new entries at every wakeup, until cancelled."""
        wakeup = open_wakeup(self._store, "follower")
        feed: EntryFeed | None = None
        try:
            send_wakeup(self._store, "owner")
            while True:
                wakeup.drain()
                if feed is None and self._store.exists():
                    feed = EntryFeed(self._store)
                    self._begin_at(feed.find_end())
                if feed is not None:
                    await self._read_news(feed)
                await sleep(PAUSE_SECONDS)
                await wait_readable(wakeup)
        finally:
            wakeup.close()
            if feed is not None:
                feed.close()

    async def _read_news(self, feed: EntryFeed) -> None:
        while rows := await to_thread.run_sync(self._read_page, feed, self._end):
            self._add_rows(rows)
            self._announce_news()
        if (mail := await to_thread.run_sync(feed.find_last_mail)) != self.last_mail:
            self.last_mail = mail
            self._announce_news()

    def _begin_at(self, last: FeedRow | None) -> None:
        self._start = self._end = 0 if last is None else last.position

    def _add_rows(self, rows: list[FeedRow]) -> None:
        self._rows.extend(rows)
        self._size += sum(len(row.line) for row in rows)
        self._end = rows[-1].position
        while len(self._rows) > MOST_KEPT or (self._size > LARGEST_KEPT and len(self._rows) > 1):
            dropped = self._rows.popleft()
            self._size -= len(dropped.line)
            self._start = dropped.position

    def _announce_news(self) -> None:
        news, self._news = self._news, Flag()
        news.set()

    def close(self) -> None:
        """End all streams."""
        self.is_closed = True
        self._announce_news()

    async def wait_news(self, position: int, mail: int) -> None:
        """Wait until there is an entry after `position` or a mailbox message after `mail`, or the hub is closed."""
        while self._end <= position and self.last_mail == mail and not self.is_closed:
            await self._news.wait()

    async def read_after(self, position: int) -> list[FeedRow]:
        """Return a page of entries after a position, from memory or, if they are no longer there, from the store.

        The list is empty if there is no such entry yet.
        """
        if position >= self._end:
            return []
        if position >= self._start:
            first = bisect_right(self._rows, position, key=lambda row: row.position)
            return [self._rows[index] for index in range(first, min(first + PAGE, len(self._rows)))]
        return await to_thread.run_sync(self._read_earlier_page, position)

    def _read_earlier_page(self, position: int) -> list[FeedRow]:
        with EntryFeed(self._store) as feed:
            return self._read_page(feed, position)

    def _read_page(self, feed: EntryFeed, position: int) -> list[FeedRow]:
        """Return a page of entries as they are sent."""
        rows = feed.read_after(position, PAGE)
        return [row._replace(line=add_sentence(row.line, row.kind, user=self._user)) for row in rows]
