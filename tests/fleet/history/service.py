"""Processes of a history that are killed, suspended and started again, as a service manager would."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[3]


@dataclass
class Service:
    """A program that is started again whenever it has ended, unless it is held or has nothing more to do.

    `ready` is what its log says when it has started. An exit by itself after that is in `own_exits`.
    """

    name: str
    command: Sequence[str]
    environ: Mapping[str, str]
    log: Path
    ready: bytes = b""
    ends: bool = False
    """Whether exit code 0 means that it has nothing more to do."""
    is_held: bool = False
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    own_exits: list[int] = field(default_factory=list)
    _log_start: int = 0

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def is_ready(self) -> bool:
        return self.is_running and self.ready in self.read_log()

    @property
    def is_done(self) -> bool:
        return self.ends and self.process is not None and self.process.poll() == 0

    def read_log(self) -> bytes:
        """Return what the current process has written."""
        return self.log.read_bytes()[self._log_start :] if self.log.exists() else b""

    def keep_running(self) -> None:
        """Start the program if it does not run and should."""
        if self.is_held or self.is_running or self.is_done:
            return
        if self.process is not None and self.process.returncode >= 0 and self.ready in self.read_log():
            self.own_exits.append(self.process.returncode)
        self.starts += 1
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**self.environ},
                cwd=ROOT,
                start_new_session=True,
            )

    def kill(self) -> bool:
        """Kill the process with SIGKILL, and return whether there was one."""
        if self.process is None or self.process.poll() is not None:
            return False
        self.process.kill()
        self.process.wait()
        return True

    def send_signal(self, sign: signal.Signals) -> list[int]:
        """Send a signal to the process and everything that it has started, and return their ids."""
        found = list_family(self.process.pid) if self.process is not None and self.is_running else []
        for pid in found:
            send_signal(pid, sign)
        return found


def send_signal(pid: int, sign: signal.Signals) -> None:
    """Send a signal to a process, which may have ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, sign)


def list_family(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found
