"""A commander that records what happens, and a raw peer that can send anything, both on a real socket."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from anyio import connect_unix, create_memory_object_stream, create_task_group, fail_after
from anyio.abc import UNIXSocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.memory import MemoryObjectReceiveStream

from podium.values.errors import PodiumError
from podium.workers.commander_socket import bind_socket, commander_socket_path
from podium.workers.wire.link import Link, LinkLimits
from podium.workers.wire.wire_message import Handshake, Order, Report
from podium.workers.wire.worker_connection import HandleWorker, WorkerTokens, serve_workers

LONG = 20.0
"""Seconds after which a test that waits has failed."""


@contextmanager
def short_path() -> Iterator[Path]:
    """Return a path that is short enough for a socket, whatever the test's name."""
    with TemporaryDirectory(prefix="podium-") as folder:
        yield commander_socket_path(Path(folder, "s.db"))


@dataclass
class RecordingCommander:
    """Records which workers connected, their messages, how their connections ended, and what was refused."""

    path: Path
    notes: MemoryObjectReceiveStream[tuple[str, Any]]
    tokens: WorkerTokens = field(default_factory=WorkerTokens)
    errors: list[tuple[str, str]] = field(default_factory=list)

    def issue_token(self, worker: str = "w1", **config: Any) -> str:
        return self.tokens.issue_token(worker, config)

    async def next_note(self) -> tuple[str, Any]:
        """Return the next message from a worker, or `ended` and how."""
        with fail_after(LONG):
            return await self.notes.receive()


@asynccontextmanager
async def start_recording_commander(
    *, limits: LinkLimits | None = None, handle: HandleWorker | None = None
) -> AsyncIterator[RecordingCommander]:
    put, notes = create_memory_object_stream[tuple[str, Any]](math.inf)

    async def listen(link: Link[Report, Order], handshake: Handshake) -> None:
        put.send_nowait((handshake.worker, handshake))
        async for message in link:
            put.send_nowait((handshake.worker, message))
        put.send_nowait((handshake.worker, f"ended: {link.end_reason}"))

    with short_path() as path, bind_socket(path) as listener, put, notes:
        commander = RecordingCommander(path, notes)

        def on_error(worker: str, error: PodiumError) -> None:
            commander.errors.append((worker, str(error)))

        async with create_task_group() as group:

            async def serve() -> None:
                await serve_workers(
                    listener, commander.tokens, handle or listen, limits=limits or LinkLimits(), on_error=on_error
                )

            group.start_soon(serve)
            yield commander
            group.cancel_scope.cancel()


class RawPeer:
    """Sends raw bytes to a socket and receives them."""

    def __init__(self, stream: UNIXSocketStream) -> None:
        self.stream = stream
        self._buffer = BufferedByteReceiveStream(stream)

    async def send(self, data: bytes) -> None:
        await self.stream.send(data)

    async def send_message(self, **fields: Any) -> None:
        await self.send(encode_fields(**fields))

    async def receive_message(self) -> dict[str, Any]:
        with fail_after(LONG):
            line = await self._buffer.receive_until(b"\n", 2**21)
        message: dict[str, Any] = json.loads(line)
        return message

    async def send_handshake(self, token: str, **fields: Any) -> dict[str, Any]:
        await self.send_message(type="handshake", **{"worker": "w1", "token": token, **fields})
        return await self.receive_message()


def encode_fields(**fields: Any) -> bytes:
    return json.dumps({"id": "x", "timestamp": 1, **fields}, ensure_ascii=False).encode() + b"\n"


@asynccontextmanager
async def connect_raw_peer(path: Path) -> AsyncIterator[RawPeer]:
    async with await connect_unix(path) as stream:
        yield RawPeer(stream)
