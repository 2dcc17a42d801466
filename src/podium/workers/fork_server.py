"""Run the fork server, a process that has loaded everything a worker needs, so that workers start quickly.

It has a single thread and no keys. It receives requests and sends replies over a socket, which is its standard input.
Each message is one line of JSON. The fork server requires Linux.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NoReturn

import msgspec
from msgspec import Struct

from .wire.line_socket import MAX_FRAME_BYTES, FrameDecoder
from .wire.link import unwrap_line
from .worker_process import EXIT_FAILED


class SpawnRequest(Struct, frozen=True, kw_only=True, tag="spawn"):
    """A request to fork a worker: the line for its standard input, the path of its log, and its working directory."""

    number: int
    line: str
    log: str
    folder: str


class KillRequest(Struct, frozen=True, kw_only=True, tag="kill"):
    """A request to send a signal to a worker's process group."""

    pid: int
    sign: int


class Spawned(Struct, frozen=True, kw_only=True, tag="spawned"):
    """The reply to a SpawnRequest: the worker's process id, or the reason why it could not be started."""

    number: int
    pid: int = 0
    trouble: str = ""


class Exited(Struct, frozen=True, kw_only=True, tag="exited"):
    """A notice that a worker's process has exited and that its process group was killed."""

    pid: int
    code: int


class ForkServer:
    """Forks workers on request and reports when they exit."""

    def __init__(self, connection: socket.socket, worker_main: Callable[[], int]) -> None:
        self._connection = connection
        self._worker_main = worker_main
        self._frames = FrameDecoder(MAX_FRAME_BYTES)
        self._alive: set[int] = set()
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> None:
        """Handle requests and report exited workers until the connection closes."""
        import select

        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        while True:
            ready, _, _ = select.select([self._connection.fileno(), self._woken], [], [])
            if self._woken in ready:
                os.read(self._woken, MAX_FRAME_BYTES)
                self._reap_children()
            if self._connection.fileno() in ready:
                data = self._connection.recv(MAX_FRAME_BYTES)
                if not data:
                    return
                for line in self._frames.feed(data):
                    self._handle_request(msgspec.json.decode(unwrap_line(line), type=SpawnRequest | KillRequest))

    def _handle_request(self, request: SpawnRequest | KillRequest) -> None:
        match request:
            case SpawnRequest(number=number):
                try:
                    self._send_message(Spawned(number=number, pid=self._fork_worker(request)))
                except OSError as error:
                    self._send_message(Spawned(number=number, trouble=str(error)))
            case KillRequest(pid=pid, sign=sign) if pid in self._alive:
                with suppress(ProcessLookupError):
                    os.killpg(pid, sign)

    def _fork_worker(self, request: SpawnRequest) -> int:
        """Fork a worker and return its pid once its setup is done."""
        waiting, ready_fd = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            close_fds = (self._connection.fileno(), self._woken, self._wake, waiting)
            _run_forked_worker(request, self._worker_main, close_fds=close_fds, ready_fd=ready_fd)
        os.close(ready_fd)
        os.read(waiting, 1)
        os.close(waiting)
        self._alive.add(pid)
        return pid

    def _reap_children(self) -> None:
        """Report workers that have exited.

        Each process group is killed before the operating system can reuse its id.
        """
        while self._alive:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return
            with suppress(ProcessLookupError):
                os.killpg(ended.si_pid, signal.SIGKILL)
            _, status = os.waitpid(ended.si_pid, 0)
            self._alive.discard(ended.si_pid)
            self._send_message(Exited(pid=ended.si_pid, code=os.waitstatus_to_exitcode(status)))

    def _send_message(self, message: Spawned | Exited) -> None:
        self._connection.sendall(msgspec.json.encode(message) + b"\n")


def _run_forked_worker(
    request: SpawnRequest, worker_main: Callable[[], int], *, close_fds: Iterable[int], ready_fd: int
) -> NoReturn:
    """Run a worker in the forked process and exit with its code."""
    code = EXIT_FAILED
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in close_fds:
            os.close(descriptor)
        _set_up_streams(request)
        os.close(ready_fd)
        code = worker_main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else EXIT_FAILED
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        # This process is a copy of the fork server, so skip the fork server's exit handlers.
        with suppress(OSError):
            sys.stderr.flush()
        os._exit(code)


def _set_up_streams(request: SpawnRequest) -> None:
    """Change to the worker's folder, redirect output to the worker's log, and provide the request's line on stdin."""
    log = os.open(request.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    told, tell = os.pipe()
    os.write(tell, request.line.encode() + b"\n")
    for own, standard in ((told, 0), (log, 1), (log, 2)):
        os.dup2(own, standard)
    for done in {told, tell, log} - {0, 1, 2}:
        os.close(done)
    os.chdir(request.folder)
