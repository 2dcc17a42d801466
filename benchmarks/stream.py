"""The child's side of the streaming row: many replies at once, their pieces stamped by the sender.

A piece contains its sending time, so its receiver can tell how late it is. Checking that costs time, so
one job measures processor time without checking, and another one checks. Peers import this module in
their own environments, so it needs only the standard library.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from .child import Clock, serve
from .heap import warm_up_heap

See = Callable[[str], None]
Call = Callable[[], Awaitable[str]]
Open = Callable[[str, See | None], AbstractAsyncContextManager[Call]]
"""Takes the address of a model and an optional observer of pieces, and opens a block for calling the model."""

STAMP_LENGTH = 18


def make_stamped_piece() -> str:
    """Return a piece that contains the current time."""
    return f"{time.time():.6f} "


def piece_ages(text: str, now: float) -> list[float]:
    """Return how old the pieces of a text are, in seconds."""
    return [now - float(sent) for sent in text.split()]


class StreamingJobs:
    """The jobs of a program that streams."""

    def __init__(self, open_: Open) -> None:
        self.late: dict[str, list[float]] = {"seen": []}
        """The ages of the observed pieces of the last replies, by what happened to them."""
        self._open = open_

    def serve(self) -> None:
        """Stay on one processor, and run the requested jobs."""
        warm_up_heap()
        if sys.platform == "linux":
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        serve(stream=self.stream, watch=self.watch, late=self.report_lateness)

    async def stream(self, request: dict[str, Any]) -> dict[str, float]:
        """Stream to `agents` agents at once, each receiving one reply of `pieces` pieces."""
        return await self._receive_replies(request, None)

    async def watch(self, request: dict[str, Any]) -> dict[str, float]:
        """Do the same, but check the age of every piece."""
        for late in self.late.values():
            late.clear()
        seen = self.late["seen"]
        return await self._receive_replies(request, lambda text: seen.extend(piece_ages(text, time.time())))

    async def report_lateness(self, request: dict[str, Any]) -> dict[str, float]:
        """Return the age within which this `share` of all `sent` pieces arrived."""
        late = sorted(self.late[request["of"]])
        return {"wall": late[int(len(late) * request["share"])], "failed": abs(request["sent"] - len(late))}

    async def _receive_replies(self, request: dict[str, Any], see: See | None) -> dict[str, float]:
        failed = 0

        async def one(call: Call) -> None:
            nonlocal failed
            try:
                said = await call()
            except Exception as error:
                said = repr(error)
            if len(said) != request["pieces"] * STAMP_LENGTH:
                failed += 1
                print(f"the reply was {said!r}", file=sys.stderr)

        async with self._open(request["url"], see) as call:
            with Clock() as clock:
                async with asyncio.TaskGroup() as group:
                    for _ in range(request["agents"]):
                        group.create_task(one(call))
        return clock.as_sample(1, failed=failed)
