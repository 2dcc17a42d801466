"""Start worker processes for a commander.

Workers are forked from a fork server, a small process that has loaded everything a worker needs. The
fork server is started on demand, restarted if it has exited, and exits with its commander; its workers exit
with it. Forking requires Linux: elsewhere each worker is a new process that loads everything itself.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import msgspec
from anyio import (
    TASK_STATUS_IGNORED,
    BrokenResourceError,
    CancelScope,
    Event,
    Lock,
    create_task_group,
    move_on_after,
)
from anyio.abc import TaskGroup, TaskStatus

from ..system.process_group import ChildProcess, ProgramNotStarted, start_process
from ..values.errors import OutsideFailed
from .fork_server import Exited, KillRequest, Spawned, SpawnRequest
from .wire.line_socket import MAX_FRAME_BYTES, ConnectionClosed, LineStream
from .wire.link import unwrap_line

CAN_FORK = sys.platform == "linux"

GRACE_SECONDS = 2.0
UNREAD_SECONDS = 60.0
LOST_EXIT_CODE = -int(signal.SIGKILL)
"""The exit code for workers whose fork server has exited. The operating system kills these workers with SIGKILL."""


@dataclass(slots=True, kw_only=True)
class ForkedProcess:
    """A worker process forked by the fork server."""

    pid: int = 0
    returncode: int | None = None
    trouble: str = "the fork server has exited; the next attempt will start a new fork server"
    _fork_server: ForkServerClient
    _is_started: Event = field(default_factory=Event)
    _is_over: Event = field(default_factory=Event)

    async def wait(self) -> int:
        """Wait for the process to exit and return its exit code."""
        await self._is_over.wait()
        return LOST_EXIT_CODE if self.returncode is None else self.returncode

    async def kill(self, sign: signal.Signals) -> None:
        """Send a signal to the process group. Do nothing if the process has exited."""
        if not self._is_over.is_set():
            with suppress(ConnectionClosed):
                await self._fork_server.send_request(KillRequest(pid=self.pid, sign=sign))


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshProcess:
    """A worker process that was started without a fork server."""

    process: ChildProcess

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def returncode(self) -> int | None:
        return self.process.returncode

    async def wait(self) -> int:
        """Wait for the process to exit and return its exit code."""
        return await self.process.wait()

    async def kill(self, sign: signal.Signals) -> None:
        """Send a signal to the process group. Do nothing if the process has exited."""
        self.process.signal_group(sign)


class Spawner:
    """Starts workers, all with the same environment. If `is_forking`, it forks them from a fork server."""

    def __init__(self, group: TaskGroup, environ: Mapping[str, str], *, is_forking: bool) -> None:
        self._group = group
        self._environ = environ
        self._is_forking = is_forking
        self._fork_server: ForkServerClient | None = None
        self._opening = Lock()

    async def warm_up(self) -> int:
        """Start the fork server if workers are forked, and return the pid of the workers' parent process.

        The parent is the fork server if workers are forked, and otherwise this process. Raise OutsideFailed if the fork
        server cannot be started.
        """
        return (await self._ensure_fork_server()).pid if self._is_forking else os.getpid()

    async def spawn(self, line_for: Callable[[int], str], *, log: Path, folder: Path) -> ForkedProcess | FreshProcess:
        """Start a worker. `line_for` takes the pid of its parent and returns the line for its standard input.

        Raise OutsideFailed if the worker cannot be started.
        """
        if self._is_forking:
            fork_server = await self._ensure_fork_server()
            return await fork_server.spawn(line_for(fork_server.pid), log=log, folder=folder)
        return await _start_fresh_process(line_for(os.getpid()), log=log, folder=folder, environ=self._environ)

    def stop_idle_fork_server(self) -> None:
        """Stop the fork server to free its memory. Call this only while there are no workers.

        A new fork server is started for the next worker.
        """
        if self._fork_server is not None:
            self._fork_server.scope.cancel()
            self._fork_server = None

    async def _ensure_fork_server(self) -> ForkServerClient:
        async with self._opening:
            if self._fork_server is None or self._fork_server.is_gone:
                self._fork_server = await self._group.start(_run_fork_server, self._environ)
            assert self._fork_server is not None
            return self._fork_server


@asynccontextmanager
async def open_spawner(environ: Mapping[str, str], *, is_forking: bool = CAN_FORK) -> AsyncIterator[Spawner]:
    """Open a spawner. When the block ends, forked workers are killed; the caller must stop other workers."""
    async with create_task_group() as group:
        yield Spawner(group, environ, is_forking=is_forking)
        group.cancel_scope.cancel()


class ForkServerClient:
    """A connection to a fork server, with the workers that this server has forked."""

    def __init__(self, pid: int, stream: LineStream) -> None:
        self.pid = pid
        self.is_gone = False
        self.scope = CancelScope()
        """Cancel this to stop the fork server."""
        self._stream = stream
        self._sending = Lock()
        self._numbers = count(1)
        self._expected: dict[int, ForkedProcess] = {}
        self._alive: dict[int, ForkedProcess] = {}

    async def spawn(self, line: str, *, log: Path, folder: Path) -> ForkedProcess:
        number = next(self._numbers)
        child = self._expected[number] = ForkedProcess(_fork_server=self)
        try:
            await self.send_request(SpawnRequest(number=number, line=line, log=str(log), folder=str(folder)))
            await child._is_started.wait()
        except ConnectionClosed:
            pass
        except BaseException:
            # The caller has given up, but the process may still start.
            with CancelScope(shield=True), move_on_after(GRACE_SECONDS, shield=True):
                await child._is_started.wait()
                await child.kill(signal.SIGKILL)
            raise
        if not child.pid:
            raise OutsideFailed(f"could not start a worker process: {child.trouble}", retryable=True)
        return child

    async def send_request(self, request: SpawnRequest | KillRequest) -> None:
        """Send a request to the fork server. Raise ConnectionClosed if the fork server has exited."""
        async with self._sending:
            await self._stream.write_line(msgspec.json.encode(request) + b"\n", within=UNREAD_SECONDS)

    async def receive_messages(self) -> None:
        """Handle the fork server's messages until the connection closes."""
        try:
            while True:
                self._handle_message(
                    msgspec.json.decode(unwrap_line(await self._stream.read_line()), type=Spawned | Exited)
                )
        except ConnectionClosed:
            pass
        finally:
            self.is_gone = True
            for child in (*self._expected.values(), *self._alive.values()):
                child.returncode = LOST_EXIT_CODE
                child._is_started.set()
                child._is_over.set()

    def _handle_message(self, message: Spawned | Exited) -> None:
        match message:
            case Spawned(number=number, pid=0, trouble=trouble):
                child = self._expected.pop(number)
                child.trouble = trouble
                child._is_started.set()
                child._is_over.set()
            case Spawned(number=number, pid=pid):
                child = self._alive[pid] = self._expected.pop(number)
                child.pid = pid
                child._is_started.set()
            case Exited(pid=pid, code=code):
                child = self._alive.pop(pid)
                child.returncode = code
                child._is_over.set()


async def _run_fork_server(
    environ: Mapping[str, str], *, task_status: TaskStatus[ForkServerClient] = TASK_STATUS_IGNORED
) -> None:
    """Run a fork server until it exits or is cancelled. Raise OutsideFailed if it cannot be started."""
    ours, theirs = socket.socketpair()
    stream = LineStream(ours, longest=MAX_FRAME_BYTES)
    try:
        process = start_process(
            [*_python_command("fork_server"), str(os.getpid())],
            env=environ,
            directory="/",
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=None,
        )
    except ProgramNotStarted as error:
        stream.close()
        raise OutsideFailed(f"could not start the fork server: {error}") from error
    finally:
        theirs.close()
    fork_server = ForkServerClient(process.pid, stream)
    task_status.started(fork_server)
    try:
        with fork_server.scope:
            await fork_server.receive_messages()
    finally:
        stream.close()
        await process.end(grace=0)


async def _start_fresh_process(line: str, *, log: Path, folder: Path, environ: Mapping[str, str]) -> FreshProcess:
    try:
        with log.open("ab") as file:
            process = start_process(
                _python_command("worker"),
                env=environ,
                directory=folder,
                stdin=subprocess.PIPE,
                stdout=file.fileno(),
                stderr=file.fileno(),
            )
    except OSError as error:
        raise OutsideFailed(f"could not start a worker process: {error}") from error
    try:
        with suppress(BrokenResourceError):  # the process has already exited; its exit code says why
            await process.write_stdin(line.encode() + b"\n")
        await process.close_stdin()
    except BaseException:
        await process.end(grace=0)
        raise
    return FreshProcess(process=process)


def _python_command(module: str) -> list[str]:
    """Return the command that runs a `podium.programs` module, without the current folder on the import path."""
    return [sys.executable, "-P", "-m", f"podium.programs.{module}"]
