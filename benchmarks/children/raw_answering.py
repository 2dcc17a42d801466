"""The limit for answering: `python -m benchmarks.children.raw_answering FOLDER` answers every request.

It has a store with the same tables and pragmas, and is woken by a datagram. It reads the request, writes its answer
so that it survives a power loss, and wakes the process that asked.
"""

from __future__ import annotations

import socket
import sys
from contextlib import closing
from pathlib import Path

from podium.store.store_connection import open_connection


def main(folder: Path) -> None:
    """Serve until the process is ended."""
    with (
        closing(open_connection(folder / "raw.db", create=True)) as connection,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as wakeup,
    ):
        connection.execute("PRAGMA synchronous = FULL")
        wakeup.bind(str(folder / "answering"))
        print(f"listening on {folder}", flush=True)
        while asker := wakeup.recv(1024):
            run, seq, line = connection.execute("SELECT run, seq, line FROM entry ORDER BY seq DESC LIMIT 1").fetchone()
            connection.execute("INSERT INTO mail (run, ref, at, line) VALUES (?, ?, 0, ?)", (run, str(seq), line))
            wakeup.sendto(b"!", asker)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
