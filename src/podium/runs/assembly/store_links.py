"""Connect a run with its store: attachments, artifacts, and receipts for the messages of other runs' agents."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from anyio import to_thread

from ...store.mailbox import post_to_mailbox
from ...store.run_store import RunLease, RunStore
from ...values.errors import PodiumError
from ...values.event import MessageAcknowledged, MessageReceived


class StoreLinks:
    """The links of a run whose lease this process holds. Requests that wait for an answer go to `report_waiting`."""

    def __init__(
        self, store: RunStore, lease: RunLease, *, report_waiting: Callable[[str], object] | None = None
    ) -> None:
        self._store = store
        self._lease = lease
        self._report_waiting = report_waiting

    def read_attachment(self, digest: str) -> bytes | None:
        return self._store.read_attachment(self._lease.run, digest)

    def store_artifact(self, digest: str, data: bytes) -> None:
        self._store.store_artifact(self._lease, digest, data)

    async def acknowledge(self, messages: Iterable[MessageReceived], *, is_delivered: bool = True) -> None:
        for message in messages:
            if message.sender:
                receipt = MessageAcknowledged(id=message.id, to=message.to, is_delivered=is_delivered)
                with suppress(PodiumError):  # the run continues without the receipt; the store reports its failure
                    send = partial(post_to_mailbox, self._store.path, message.sender, receipt)
                    await to_thread.run_sync(partial(send, ref=f"receipt:{message.id}"))

    def report_waiting(self, request: str) -> None:
        if self._report_waiting is not None:
            self._report_waiting(request)
