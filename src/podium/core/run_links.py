"""Define what a run reaches beside its timeline: stored files, senders of messages, and those who answer requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ..values.event import MessageReceived


class RunLinks(Protocol):
    """What a run reaches beside its timeline."""

    def read_attachment(self, digest: str) -> bytes | None:
        """Return the content of the run's attachment with this digest, or None."""
        ...

    def store_artifact(self, digest: str, data: bytes) -> None:
        """Store the content of an artifact under its digest. The event for the artifact is recorded afterwards."""
        ...

    async def acknowledge(self, messages: Iterable[MessageReceived], *, is_delivered: bool = True) -> None:
        """Tell the runs of the agents that sent these messages whether they are delivered."""
        ...

    def report_waiting(self, request: str) -> None:
        """Report that the request or question with this id is written and is waiting for an answer."""
        ...


class NoLinks:
    """The links of a run that is only read or written, not executed: there are no attachments and nobody to tell."""

    def read_attachment(self, digest: str) -> bytes | None:
        return None

    def store_artifact(self, digest: str, data: bytes) -> None:
        """Store nothing."""

    async def acknowledge(self, messages: Iterable[MessageReceived], *, is_delivered: bool = True) -> None:
        """Tell nobody."""

    def report_waiting(self, request: str) -> None:
        """Tell nobody."""


NO_LINKS = NoLinks()
