"""Watch for requests from workers, so that people can be asked to answer them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Protocol

from anyio import sleep, to_thread, wait_readable

from ...core.open_requests import describe_closing
from ...store.answering_clients import register_client
from ...store.open_requests import OpenRequest, list_open_requests
from ...store.reader import RunSummary, StoreReader
from ...store.wakeup import open_wakeup, send_wakeup
from ...store.worker_index import WorkerIndex
from ...values.event import Entry
from ...values.store_address import StoreAddress

LOOK_SECONDS = 0.5
"""The minimum time between two scans of all runs, however often workers write to the store."""


class RequestListener(Protocol):
    """Receives requests, and is notified when a request no longer needs an answer."""

    def handle_entry(self, entry: Entry, worker: str = "") -> None:
        """Handle an entry with a request or question for a person. `worker` is the name of the worker that asked."""
        ...

    def withdraw_request(self, id: str, how: str) -> None:
        """Stop asking about a request that has been closed.

        `how` is the end of a sentence that says how it was closed, such as `timed out` or `was answered by Ada`.
        """
        ...


class RequestListeners:
    """Passes requests on to all its listeners."""

    def __init__(self, *listeners: RequestListener) -> None:
        self._listeners = listeners

    def handle_entry(self, entry: Entry, worker: str = "") -> None:
        for listener in self._listeners:
            listener.handle_entry(entry, worker)

    def withdraw_request(self, id: str, by: str) -> None:
        for listener in self._listeners:
            listener.withdraw_request(id, by)


class WorkerRequestWatcher:
    """Passes the requests from all workers of a store, or from one run's workers, to a listener."""

    def __init__(self, store: StoreAddress, listener: RequestListener, *, sent_by: str = "") -> None:
        self._store = store
        self._sent_by = sent_by
        self._listener = listener
        self._open: dict[str, str] = {}
        """The requests that were passed to the listener and not withdrawn, each with its run."""

    async def watch_requests(self) -> None:
        """Scan for requests at every wakeup, until cancelled.

        This process counts as a client that can answer requests only if it watches all workers.
        """
        wakeup = open_wakeup(self._store, "follower")
        try:
            send_wakeup(self._store, "owner")
            with nullcontext() if self._sent_by else register_client(self._store):
                while True:
                    wakeup.drain()
                    if self._store.exists():
                        asked = await to_thread.run_sync(self._list_worker_requests)
                        self._forward_changes(
                            asked, await to_thread.run_sync(self._describe_closings, self._open.keys() - asked.keys())
                        )
                    await sleep(LOOK_SECONDS)
                    await wait_readable(wakeup)
        finally:
            wakeup.close()

    def _list_worker_requests(self) -> dict[str, OpenRequest]:
        """Return the workers' open requests, keyed by id."""
        workers = {row.run for row in WorkerIndex(self._store).list_open()}
        if not workers:
            return {}
        asked = [one for one in list_open_requests(self._store) if one.summary.id in workers]
        if self._sent_by:
            with StoreReader(self._store) as reader:
                asked = [one for one in asked if self._sent_by in walk_parent_runs(reader, one.summary)]
        return {one.asked.id: one for one in asked}

    def _describe_closings(self, gone: set[str]) -> dict[str, str]:
        """Describe how each of these requests was closed.

        If the answer to a request is not on the timeline yet, the request is omitted, and a later scan reports it.
        """
        closings: dict[str, str] = {}
        with StoreReader(self._store) as reader:
            for run in {self._open[id] for id in gone}:
                requests = reader.read_requests(run)
                still_open = requests.list_open(now=time.time())
                for id in gone:
                    if self._open[id] == run and id not in still_open:
                        closings[id] = describe_closing(requests.answers.get(id))
        return closings

    def _forward_changes(self, asked: dict[str, OpenRequest], closed: dict[str, str]) -> None:
        for id, how in closed.items():
            self._listener.withdraw_request(id, how)
            del self._open[id]
        for id, one in asked.items():
            if id not in self._open:
                self._open[id] = one.entry.run
                self._listener.handle_entry(one.entry, one.worker_name)


def walk_parent_runs(reader: StoreReader, summary: RunSummary) -> Iterator[str]:
    """Yield the run that started this worker, then the run that started that run, and so on."""
    while (task := summary.started.errand) and task.parent:
        yield task.parent
        summary = reader.read_summary(task.parent)
