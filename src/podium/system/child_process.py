"""A child process of a tool: it belongs to the block that started it, with all that it starts itself.

It has a session and process group of its own, no input but what it is given, and both its outputs in
one. When it ends, is late or is cancelled, its whole group ends with it. What leaves the group on
purpose (`setsid`) is out of reach from here: a sandbox with its own process numbers closes that.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import IO

from anyio import CancelScope, create_task_group, current_time, move_on_after, to_thread, wait_readable

GRACE = 2.0
"""Seconds between asking a group to end and killing it."""
DRAIN = 0.5
"""Seconds in which output still arrives after the end; who keeps the pipe open longer is not of the group."""
CHUNK = 65536

PASSED_ON = frozenset(
    (
        *("PATH", "HOME", "LANG", "LANGUAGE", "TERM", "TMPDIR", "TZ", "USER", "LOGNAME", "SHELL"),
        *("VIRTUAL_ENV", "CONDA_PREFIX", "JAVA_HOME", "GOPATH", "GOROOT", "CARGO_HOME", "RUSTUP_HOME", "NVM_DIR"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR"),
    )
)
"""What a command sees of our environment, besides LC_*: nothing here holds a secret."""

Wrap = Callable[[list[str]], list[str]]
"""Puts a sandbox around a command line."""


class SandboxedCommand(list[str]):
    """A command line with a sandbox around it, and what is to be done when the command has ended, however it ended.

    Its input is a door: the sandbox knocks with a line when it stands, and the command begins when one comes back.
    Who was killed meanwhile does not answer, so no command begins that nobody is there to end.
    """

    def __init__(self, argv: Sequence[str], clean_up: Callable[[], None]) -> None:
        super().__init__(argv)
        self.clean_up = clean_up


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExit:
    """How a process ended: its exit code, negative for the signal that ended it; or that it was late."""

    code: int
    has_timed_out: bool = False

    def __str__(self) -> str:
        if self.code >= 0:
            return f"exit code {self.code}"
        with suppress(ValueError):
            return f"ended by {signal.Signals(-self.code).name}"
        return f"ended by signal {-self.code}"


def build_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a command: a few names that are passed on, and pagers that do not wait for a key."""
    given = os.environ if environ is None else environ
    kept = {name: value for name, value in given.items() if name in PASSED_ON or name.startswith("LC_")}
    # A relative entry would find programs in the checkout, under names of programs that people trust.
    kept["PATH"] = os.pathsep.join(one for one in kept.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(one))  # noqa: PTH117 - plain text
    return kept | {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}


async def run_process(
    argv: Sequence[str], *, directory: str, timeout: float, take: Callable[[bytes], bool], stdin: bytes = b""
) -> ProcessExit:
    """Run it to its end. `take` is given its output as it comes, and ends it early by returning False.

    Raises OSError where it cannot be started.
    """
    with ExitStack() as after:
        start_socket = None
        if isinstance(argv, SandboxedCommand):
            after.callback(argv.clean_up)
            ours, theirs = socket.socketpair()
            start_socket = after.enter_context(ours)
        pipe, its_end = os.pipe()
        after.callback(os.close, pipe)
        try:
            with theirs if start_socket else _open_stdin(stdin) as given:
                process = _start_process(argv, directory, given, its_end)
        finally:
            os.close(its_end)
        os.set_blocking(pipe, False)
        return await _supervise_process(process, pipe, timeout, take, start_socket)


def _open_stdin(stdin: bytes) -> IO[bytes]:
    if not stdin:
        return open(os.devnull, "rb")  # noqa: PTH123 - as files go that have no name
    given = tempfile.TemporaryFile()  # noqa: SIM115 - whoever asked closes it
    given.write(stdin)
    given.seek(0)
    return given


def _start_process(
    argv: Sequence[str], directory: str, given: IO[bytes] | socket.socket, output: int
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        list(argv),
        stdin=given.fileno(),
        stdout=output,
        stderr=output,
        cwd=directory,
        env=build_environment(),
        start_new_session=True,
    )


async def _release_command(start_socket: socket.socket) -> None:
    """Let a command begin as soon as its sandbox stands."""
    await wait_readable(start_socket)
    with suppress(OSError):
        if start_socket.recv(1):
            start_socket.send(b"\n")


async def _supervise_process(
    process: subprocess.Popen[bytes],
    pipe: int,
    timeout: float,
    take: Callable[[bytes], bool],
    start_socket: socket.socket | None,
) -> ProcessExit:
    has_timed_out = True
    try:
        async with create_task_group() as group:
            if start_socket is not None:
                group.start_soon(_release_command, start_socket)

            async def read_until_enough() -> None:
                if not await _read_output(pipe, take):
                    enough.cancel()

            with CancelScope() as enough, move_on_after(timeout):
                group.start_soon(read_until_enough)
                await _wait_exit(process)
                has_timed_out = False
            has_timed_out = has_timed_out and not enough.cancel_called
            await _end_group(process, by_itself=not has_timed_out and not enough.cancel_called)
            group.cancel_scope.deadline = current_time() + DRAIN
    finally:
        await _end_group(process)
    return ProcessExit(
        code=-signal.SIGKILL if process.returncode is None else process.returncode, has_timed_out=has_timed_out
    )


async def _read_output(pipe: int, take: Callable[[bytes], bool]) -> bool:
    """Give all output on; False as soon as no more is wanted."""
    while True:
        await wait_readable(pipe)
        try:
            chunk = os.read(pipe, CHUNK)
        except BlockingIOError:
            continue
        if not chunk:
            return True
        if not take(chunk):
            return False


async def _end_group(process: subprocess.Popen[bytes], *, by_itself: bool = False) -> None:
    """See to it that nothing of the group is left: asked first, unless it ended by itself, then killed."""
    if process.returncode is not None:
        return
    with CancelScope(shield=True, deadline=current_time() + 2 * GRACE):
        if not by_itself:
            _signal_group(process, signal.SIGTERM)
            with move_on_after(GRACE):
                await _wait_exit(process)
        # The ended leader is not reaped yet, so its number is still the group's and nobody else's.
        _signal_group(process, signal.SIGKILL)
        await _wait_exit(process)
    process.poll()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS says the latter of a group that has ended
        os.killpg(process.pid, number)


async def _wait_exit(process: subprocess.Popen[bytes]) -> None:
    """Return when the process has ended. It is not reaped."""
    if (fd := _open_pidfd(process.pid)) is None:
        wait = os.WEXITED | os.WNOWAIT
        await to_thread.run_sync(os.waitid, os.P_PID, process.pid, wait, abandon_on_cancel=True)
        return
    try:
        await wait_readable(fd)
    finally:
        os.close(fd)


def _open_pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends, where the system has such."""
    if sys.platform == "linux":
        with suppress(OSError):
            return os.pidfd_open(pid)
    return None
