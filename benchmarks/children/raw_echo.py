"""An echo on a Unix socket: `python -m benchmarks.children.raw_echo FOLDER HOW`, with an event `loop` or `blocking`."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

MAX_READ_BYTES = 64 * 1024


async def serve_with_event_loop(path: str) -> None:
    """Serve until the process is ended, as many at once as come."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(MAX_READ_BYTES):
            writer.write(data)
            await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(echo, path)
    print(f"listening on {path}", flush=True)
    await server.serve_forever()


def serve_blocking(path: str) -> None:
    """The same for one at a time."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen()
        print(f"listening on {path}", flush=True)
        while True:
            with listener.accept()[0] as connection:
                while data := connection.recv(MAX_READ_BYTES):
                    connection.sendall(data)


if __name__ == "__main__":
    place = str(Path(sys.argv[1], "echo"))
    if sys.argv[2] == "loop":
        asyncio.run(serve_with_event_loop(place))
    else:
        serve_blocking(place)
