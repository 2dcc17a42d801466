"""A TCP proxy in front of a server, whose connections can be cut and stalled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

CHUNK = 1 << 16


class FaultProxy:
    """Passes bytes between clients and a server on loopback."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._is_flowing = asyncio.Event()
        self._is_flowing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.held = 0
        """How many connections have something that is not passed on."""

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[FaultProxy]:
        """Accept connections while the block runs."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> int:
        """Cut all connections in both directions, with whatever is on its way, and return how many there were."""
        writers = list(self._writers)
        for writer in writers:
            writer.transport.abort()
        return len(writers) // 2

    def stall(self) -> None:
        """Pass nothing on until `flow` is called. Connections stay open, and new ones are accepted."""
        self._is_flowing.clear()

    def flow(self) -> None:
        """Pass on what has waited, and everything after it."""
        self._is_flowing.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:
            writer.transport.abort()
            return
        for source, sink in ((reader, server_writer), (server_reader, writer)):
            self._writers.add(sink)
            task = asyncio.create_task(self._pass_on(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):
                while data := await source.read(CHUNK):
                    self.held += 1
                    await self._is_flowing.wait()
                    self.held -= 1
                    sink.write(data)
                    await sink.drain()
        finally:
            self._writers.discard(sink)
            sink.close()
