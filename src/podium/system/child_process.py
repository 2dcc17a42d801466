"""Run child processes until they exit: commands from tools, git, and programs that search or test.

The caller specifies a command's environment, input, descriptors, time limit and output limit. A command never outlives
the call that started it: when it exits, times out, prints too much or is cancelled, its whole process group is
terminated.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

from anyio import CancelScope, create_task_group, move_on_after, sleep, wait_readable, wait_writable

from .process_group import CHUNK, GRACE, ChildProcess, ProgramNotStarted, read_pipe, start_process
from .trace_parent import trace_variables

BREACH_SECONDS = 0.25
"""Seconds between checks of the resources that a sandboxed command uses."""
LARGEST_PIPE = 1024 * 1024
"""The maximum number of bytes that a pipe can hold.

If more bytes than this arrive after the process group has ended, a process that has left the group is writing them."""

PASSED_ON = frozenset(
    (
        *("PATH", "HOME", "LANG", "LANGUAGE", "TERM", "TMPDIR", "TZ", "USER", "LOGNAME", "SHELL"),
        *("VIRTUAL_ENV", "CONDA_PREFIX", "JAVA_HOME", "GOPATH", "GOROOT", "CARGO_HOME", "RUSTUP_HOME", "NVM_DIR"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "PODIUM_SLOT", "PODIUM_DATABASE"),
    )
)
"""The environment variables that commands inherit. None of them contains a secret."""
PASSED_ON_PREFIXES = ("LC_", "PODIUM_PORT_")
"""Commands also inherit the environment variables whose names start with one of these prefixes."""

Wrap = Callable[[list[str]], list[str]]
"""Wraps a command line in a sandbox."""


class CommandRelay(Protocol):
    """A command's only connection to anything outside its sandbox."""

    @property
    def descriptor(self) -> int:
        """The file descriptor that a relayed command inherits."""
        ...

    def close_inner(self) -> None:
        """Close this process's copy of `descriptor`, once the command has inherited it."""
        ...

    async def serve(self) -> None:
        """Start the command when its sandbox is ready, and serve its connections until it ends."""
        ...


class SandboxedCommand(list[str]):
    """A command line wrapped in a sandbox. `clean_up` is called when the command ends, for whatever reason.

    Without a relay, its stdin is a socket: the sandbox writes a line when it is ready, and starts the command when it
    receives a line. With a relay, the same happens on the relay's descriptor, and stdin is free. If Podium is killed
    before it sends that line, the command never starts. `notes` describes a limit that the command exceeded and files
    that it left behind, if any.
    """

    def __init__(
        self,
        argv: Sequence[str],
        clean_up: Callable[[], None],
        find_breach: Callable[[], str] = lambda: "",
        relay: CommandRelay | None = None,
    ) -> None:
        super().__init__(argv)
        self.clean_up = clean_up
        self.find_breach = find_breach
        self.relay = relay
        self.notes: list[str] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExit:
    """The exit code of a process (negative for a signal), and whether the process timed out."""

    code: int
    has_timed_out: bool = False

    def __str__(self) -> str:
        if self.code >= 0:
            return f"exit code {self.code}"
        with suppress(ValueError):
            return f"killed by {signal.Signals(-self.code).name}"
        return f"killed by signal {-self.code}"


class OutputBuffer:
    """Collects output up to a number of bytes; a command that prints more is terminated."""

    def __init__(self, limit: int) -> None:
        self.is_cut = False
        self._limit = limit
        self._data = bytearray()

    def __bytes__(self) -> bytes:
        return bytes(self._data)

    def append(self, chunk: bytes) -> bool:
        """Add output, and return whether the buffer accepts more."""
        self._data += chunk
        if len(self._data) > self._limit:
            self.is_cut = True
            del self._data[self._limit :]
        return not self.is_cut


def build_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for a command: a few inherited variables, and settings that prevent prompts."""
    given = os.environ if environ is None else environ
    kept = {name: value for name, value in given.items() if name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES)}
    # With a relative entry, programs in the checkout could shadow trusted programs.
    kept["PATH"] = os.pathsep.join(one for one in kept.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(one))  # noqa: PTH117 - plain text
    return kept | {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"} | trace_variables()


async def run_process(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    directory: str | Path,
    take: Callable[[bytes], bool],
    take_stderr: Callable[[bytes], bool] | None = None,
    timeout: float = math.inf,
    stdin: bytes = b"",
    inherited: Collection[int] = (),
) -> ProcessExit:
    """Run a command until it exits. `take` is called with output as it arrives, and returns False to stop the command.

    `take` is also called with stderr, unless `take_stderr` is given. A sandboxed command gets `stdin` only if its
    sandbox passes input on. `inherited` contains descriptors that the command inherits. Raise ProgramNotStarted if the
    program cannot be started.
    """
    command = argv if isinstance(argv, SandboxedCommand) else None
    relay = None if command is None else command.relay
    serve = None if relay is None else relay.serve
    with ExitStack() as after:
        given: IO[bytes] | socket.socket | None = None
        try:
            if command is not None:
                after.callback(command.clean_up)
            if command is not None and relay is None:
                start_socket, given = socket.socketpair()
                after.enter_context(start_socket)
                serve = partial(_release_command, start_socket, stdin)
            elif stdin:
                given = _open_input(stdin)
        except OSError as error:
            raise ProgramNotStarted.because(error, argv[0], directory) from error
        with given or nullcontext():
            process = start_process(
                argv,
                env=env,
                directory=directory,
                stdin=given.fileno() if given else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if take_stderr else subprocess.STDOUT,
                inherited=(*inherited, *(() if relay is None else (relay.descriptor,))),
                is_sandboxed=command is not None,
            )
        after.callback(process.close)
        if relay is not None:
            relay.close_inner()
        return await _supervise_process(process, timeout, take, take_stderr, serve, command)


def _open_input(stdin: bytes) -> IO[bytes]:
    """Return a file that contains the input. On Linux, the file is in memory."""
    if sys.platform == "linux":
        given: IO[bytes] = os.fdopen(os.memfd_create("stdin"), "w+b")
    else:
        given = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    given.write(stdin)
    given.seek(0)
    return given


async def _release_command(start_socket: socket.socket, stdin: bytes) -> None:
    """Start a sandboxed command as soon as its sandbox is ready, and send it its input."""
    await wait_readable(start_socket)
    with suppress(OSError):  # the command exited without reading all its input
        if start_socket.recv(1):
            start_socket.setblocking(False)
            rest = memoryview(b"\n" + stdin)
            while rest:
                await wait_writable(start_socket)
                rest = rest[start_socket.send(rest) :]
            start_socket.shutdown(socket.SHUT_WR)


async def _supervise_process(
    process: ChildProcess,
    timeout: float,
    take: Callable[[bytes], bool],
    take_stderr: Callable[[bytes], bool] | None,
    serve: Callable[[], Coroutine[Any, Any, None]] | None,
    command: SandboxedCommand | None,
) -> ProcessExit:
    has_exited = False
    enough = CancelScope()
    outputs = [(process.stdout, take), *([(process.stderr, take_stderr)] if take_stderr else [])]

    async def read_output(pipe: IO[bytes] | None, take: Callable[[bytes], bool]) -> None:
        while chunk := await read_pipe(pipe):
            if not take(chunk):
                enough.cancel()
                return

    try:
        async with create_task_group() as group:
            if serve is not None:
                group.start_soon(serve)
            with enough, move_on_after(timeout):
                for output in outputs:
                    group.start_soon(read_output, *output)
                if command is not None:
                    group.start_soon(_end_at_breach, command, enough)
                await process.wait_exit()
                has_exited = True
            has_timed_out = not has_exited and not enough.cancel_called
            has_breached = command is not None and bool(command.notes)
            await process.end(grace=0 if has_exited or has_breached else GRACE)
            is_read = [_read_rest(*output) for output in outputs if not enough.cancel_called]
            if is_read != [True] * len(outputs) or serve is not None:
                group.cancel_scope.cancel()
    finally:
        await process.end()
    code = -signal.SIGKILL if process.returncode is None else process.returncode
    return ProcessExit(code=code, has_timed_out=has_timed_out)


async def _end_at_breach(command: SandboxedCommand, running: CancelScope) -> None:
    """End a command, by cancelling `running`, as soon as it exceeds a limit."""
    await wait_for_breach(command)
    running.cancel()


async def wait_for_breach(command: SandboxedCommand) -> None:
    """Wait until a command exceeds a limit of its sandbox, and add a note about it."""
    while not (breach := command.find_breach()):  # noqa: ASYNC110 - there is no event to wait for
        await sleep(BREACH_SECONDS)
    command.notes.append(breach)


def _read_rest(pipe: IO[bytes] | None, take: Callable[[bytes], bool]) -> bool:
    """Read the remaining output of a process that has ended, and return whether the pipe's end was reached."""
    assert pipe is not None
    with suppress(BlockingIOError):
        for _ in range(LARGEST_PIPE // CHUNK):
            chunk = os.read(pipe.fileno(), CHUNK)
            if not chunk or not take(chunk):
                return not chunk
    return False
