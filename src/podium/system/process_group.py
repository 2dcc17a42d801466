"""Start another program, and terminate it together with everything that it started.

Each program has its own session and process group, and only the environment and descriptors that its caller
specifies. The whole group is terminated: all its processes get SIGTERM and, after a grace period, SIGKILL; then the
program is reaped. A sandbox gets only SIGKILL. A process that leaves the group on purpose (`setsid`) is not terminated;
only a sandbox with its own PID namespace can terminate such a process.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from anyio import (
    BrokenResourceError,
    CancelScope,
    ClosedResourceError,
    Lock,
    current_time,
    move_on_after,
    sleep,
    to_thread,
    wait_readable,
    wait_writable,
)

from ..values.plain_text import escape_unprintable, truncate_text

GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL."""
REAP_SECONDS = 2.0
"""Seconds to wait after SIGKILL; a process in an uninterruptible system call can take longer."""
POLL_SECONDS = 0.02
CHUNK = 65536


class ProgramNotStarted(OSError):
    """A program could not be started. The message says why, as a sentence without a full stop."""

    @classmethod
    def because(cls, error: OSError, program: str, directory: str | Path | None) -> Self:
        """Return the error for a program that did not start, with an explanation of the system error."""
        return cls(error.errno, _explain_failure(error, program, directory))

    def __str__(self) -> str:
        return str(self.strerror)


class ChildProcess:
    """A running program. Its pipes are read and written without blocking."""

    def __init__(self, process: subprocess.Popen[bytes], *, is_sandboxed: bool = False) -> None:
        self.stdout, self.stderr = process.stdout, process.stderr
        self._process = process
        self._is_sandboxed = is_sandboxed
        self._writing = Lock()
        self._write_scope: CancelScope | None = None
        self._is_closing = False
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None until the program has been reaped."""
        return self._process.returncode

    async def read_stdout(self) -> bytes:
        """Return the next chunk of stdout as soon as one is available, or b"" at the end of the stream."""
        return await read_pipe(self.stdout)

    async def read_stderr(self) -> bytes:
        """Return the next chunk of stderr as soon as one is available, or b"" at the end of the stream."""
        return await read_pipe(self.stderr)

    async def write_stdin(self, data: bytes) -> None:
        """Write all data to the program's input.

        Raise BrokenResourceError if the program no longer reads its input, and ClosedResourceError if this process
        has closed the pipe.
        """
        pipe, rest = self._process.stdin, memoryview(data)
        assert pipe is not None
        async with self._writing:
            with CancelScope() as self._write_scope:
                while rest and not self._is_closing:
                    try:
                        rest = rest[os.write(pipe.fileno(), rest) :]
                    except BlockingIOError:
                        await wait_writable(pipe)
                    except BrokenPipeError:
                        raise BrokenResourceError from None
            if rest:
                raise ClosedResourceError

    async def close_stdin(self) -> None:
        """Close the program's input; a pending write is abandoned."""
        self._is_closing = True
        if self._write_scope is not None:
            self._write_scope.cancel()
        async with self._writing:
            if self._process.stdin is not None:
                self._process.stdin.close()

    async def wait(self) -> int:
        """Wait until the program has exited, terminate the other processes in its group and return its exit code."""
        await self.wait_exit()
        await self.end(grace=0)
        return self._process.wait()

    async def wait_exit(self) -> None:
        """Wait until the program has exited, without reaping it, so that its pid still identifies its process group."""
        if self._process.returncode is not None:
            return
        if (descriptor := _open_pidfd(self.pid)) is None:
            with suppress(ChildProcessError):
                options = os.WEXITED | os.WNOWAIT
                await to_thread.run_sync(os.waitid, os.P_PID, self.pid, options, abandon_on_cancel=True)
            return
        try:
            await wait_readable(descriptor)
        finally:
            os.close(descriptor)

    async def stop(self, *, grace: float) -> None:
        """Close the program's input, wait up to `grace` seconds for it to exit, then terminate its process group."""
        with CancelScope(shield=True):
            await self.close_stdin()
            with move_on_after(grace):
                await self.wait_exit()
        await self.end(grace=grace)

    async def end(self, *, grace: float = GRACE) -> None:
        """Terminate the process group and reap the program: SIGTERM, then SIGKILL after at most `grace` seconds.

        If `grace` is 0, or if the program is a sandbox, SIGKILL is sent at once. Every wait is bounded and cannot be
        cancelled.
        """
        if self.returncode is not None:
            return
        with CancelScope(shield=True, deadline=current_time() + grace + REAP_SECONDS):
            # SIGTERM does not reach a sandboxed command. While the sandbox starts, SIGTERM kills bubblewrap but not the
            # sandbox's first process, which would then wait for ever if Podium was killed during the grace period.
            if grace and not self._is_sandboxed:
                self.signal_group(signal.SIGTERM)
                with move_on_after(grace):
                    await self._wait_group()
            # The program is not reaped yet, so its pid identifies this group and no other.
            self.signal_group(signal.SIGKILL)
            if grace:
                await self._wait_group()
            elif self._process.poll() is None:
                await self.wait_exit()
        self._process.poll()

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the process group; do nothing if the group has ended."""
        if self.returncode is None:
            # macOS raises PermissionError for a process group that has ended.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def close(self) -> None:
        """Close the pipes. All tasks must have stopped reading and writing."""
        for pipe in (self._process.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()

    async def _wait_group(self) -> None:
        """Wait until no process in the group is running."""
        await self.wait_exit()
        while _is_group_running(self.pid):  # noqa: ASYNC110 - the system sends no event for an empty group
            await sleep(POLL_SECONDS)


def start_process(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    directory: str | Path | None,
    stdin: int,
    stdout: int,
    stderr: int | None,
    inherited: Collection[int] = (),
    is_sandboxed: bool = False,
) -> ChildProcess:
    """Start a program in its own session. The caller must end it. Raise ProgramNotStarted if it cannot be started.

    Its streams are descriptors, or PIPE, DEVNULL or STDOUT from `subprocess`. If `stderr` is None, the program inherits
    Podium's stderr. If `is_sandboxed`, the program is a sandbox that runs the command.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            bufsize=0,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=directory,
            env=env,
            pass_fds=inherited,
            start_new_session=True,
        )
    except OSError as error:
        raise ProgramNotStarted.because(error, argv[0], directory) from error
    return ChildProcess(process, is_sandboxed=is_sandboxed)


def _explain_failure(error: OSError, program: str, directory: str | Path | None) -> str:
    """Return why a program cannot be started, in one sentence without a full stop."""
    is_about_folder = directory is not None and error.filename == directory
    name = escape_unprintable(truncate_text(str(directory if is_about_folder else program), 200))
    match error.errno:
        case errno.EMFILE:
            import resource  # imported here, because it is not available on every system

            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            return f"this process has too many open files (limit: {limit}); raise the limit with ulimit -n"
        case errno.EAGAIN | errno.ENOMEM:
            return f"the system cannot start more processes ({error.strerror}); stop some and try again"
        case errno.ENOENT if is_about_folder:
            return f"the folder {name} does not exist"
        case errno.ENOTDIR if is_about_folder:
            return f"{name} is not a folder"
        case errno.EACCES if is_about_folder:
            return f"the folder {name} cannot be entered; change its permissions"
        case errno.ENOENT if os.sep not in program:
            return f"program {name} not found on the PATH"
        case errno.ENOENT if os.path.exists(program):  # noqa: PTH110 - a plain string
            return f"{name} is a script whose interpreter does not exist; correct its first line"
        case errno.ENOENT:
            return f"{name} does not exist"
        case errno.EACCES if os.path.isdir(program):  # noqa: PTH112 - a plain string
            return f"{name} is a folder, not a program"
        case errno.EACCES:
            return f"{name} is not executable; make it executable with chmod +x"
        case errno.ENOEXEC:
            return f"{name} is neither a program for this system nor a script with an interpreter line"
    return f"{name}: {error.strerror}"


async def read_pipe(pipe: IO[bytes] | None) -> bytes:
    """Return the next chunk of a pipe's data as soon as one is available, or b"" at the end of the stream."""
    assert pipe is not None
    while True:
        await wait_readable(pipe)
        with suppress(BlockingIOError):
            return os.read(pipe.fileno(), CHUNK)


def _open_pidfd(pid: int) -> int | None:
    """Return a descriptor that becomes readable when the process exits, or None if none can be opened."""
    if sys.platform == "linux":
        with suppress(OSError):
            return os.pidfd_open(pid)
    return None


def _is_group_running(group: int) -> bool:
    """Return whether any process in the group is running. Processes that have exited but are not reaped are ignored."""
    if sys.platform == "linux":
        with suppress(OSError):
            return any(_is_running_in(group, int(name)) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208 - names are enough
        return True  # /proc cannot be read, so assume that a process is running
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _is_running_in(group: int, pid: int) -> bool:
    with suppress(ProcessLookupError, FileNotFoundError):
        if os.getpgid(pid) == group:
            return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    return False
