"""Child processes of tools, which never outlive the call that started them.

A child process has its own session and process group, only the input that it is given, and stdout and
stderr in one stream. When it exits, times out or is cancelled, its whole process group is killed. A
process that leaves the group on purpose (`setsid`) is out of reach here; a sandbox with its own PID
namespace prevents that.
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
"""Seconds between SIGTERM and SIGKILL."""
DRAIN = 0.5
"""Seconds to read remaining output after the exit; a process that holds the pipe longer is not in the group."""
CHUNK = 65536

PASSED_ON = frozenset(
    (
        *("PATH", "HOME", "LANG", "LANGUAGE", "TERM", "TMPDIR", "TZ", "USER", "LOGNAME", "SHELL"),
        *("VIRTUAL_ENV", "CONDA_PREFIX", "JAVA_HOME", "GOPATH", "GOROOT", "CARGO_HOME", "RUSTUP_HOME", "NVM_DIR"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR"),
    )
)
"""The environment variables that commands inherit, besides LC_*; none of them holds a secret."""

Wrap = Callable[[list[str]], list[str]]
"""Wraps a command line in a sandbox."""


class SandboxedCommand(list[str]):
    """A command line wrapped in a sandbox; `clean_up` is called when the command has ended, however it ended.

    Its stdin is a socket: the sandbox writes a line when it is ready, and starts the command when it gets a line
    back. If Podium was killed in between, no line comes back, so no command starts that nobody would end.
    """

    def __init__(self, argv: Sequence[str], clean_up: Callable[[], None]) -> None:
        super().__init__(argv)
        self.clean_up = clean_up


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExit:
    """How a process ended: its exit code (negative for a signal), and whether it timed out."""

    code: int
    has_timed_out: bool = False

    def __str__(self) -> str:
        if self.code >= 0:
            return f"exit code {self.code}"
        with suppress(ValueError):
            return f"ended by {signal.Signals(-self.code).name}"
        return f"ended by signal {-self.code}"


def build_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a command: a few inherited variables, and pagers that do not wait for a key."""
    given = os.environ if environ is None else environ
    kept = {name: value for name, value in given.items() if name in PASSED_ON or name.startswith("LC_")}
    # A relative entry would find programs in the checkout that have the names of trusted programs.
    kept["PATH"] = os.pathsep.join(one for one in kept.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(one))  # noqa: PTH117 - plain text
    return kept | {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}


async def run_process(
    argv: Sequence[str], *, directory: str, timeout: float, take: Callable[[bytes], bool], stdin: bytes = b""
) -> ProcessExit:
    """Run a command until it exits. `take` receives the output as it arrives, and ends the command by returning False.

    Raises OSError if the command cannot be started.
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
        return open(os.devnull, "rb")  # noqa: PTH123 - os.devnull is a plain string
    given = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
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
    """Start the command as soon as its sandbox is ready."""
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
    """Pass all output to `take`; return False as soon as it wants no more."""
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
    """End the whole process group: SIGTERM first, unless the process exited by itself, then SIGKILL."""
    if process.returncode is not None:
        return
    with CancelScope(shield=True, deadline=current_time() + 2 * GRACE):
        if not by_itself:
            _signal_group(process, signal.SIGTERM)
            with move_on_after(GRACE):
                await _wait_exit(process)
        # The leader has exited but is not reaped yet, so its PID still identifies this group and no other.
        _signal_group(process, signal.SIGKILL)
        await _wait_exit(process)
    process.poll()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS raises the latter for a group that has ended
        os.killpg(process.pid, number)


async def _wait_exit(process: subprocess.Popen[bytes]) -> None:
    """Wait until the process has exited, without reaping it."""
    if (fd := _open_pidfd(process.pid)) is None:
        wait = os.WEXITED | os.WNOWAIT
        await to_thread.run_sync(os.waitid, os.P_PID, process.pid, wait, abandon_on_cancel=True)
        return
    try:
        await wait_readable(fd)
    finally:
        os.close(fd)


def _open_pidfd(pid: int) -> int | None:
    """Return a descriptor that becomes readable when the process exits; None if the system has none."""
    if sys.platform == "linux":
        with suppress(OSError):
            return os.pidfd_open(pid)
    return None
