"""Run `podium` commands in processes that are forked from one that has already imported the commands.

Importing takes most of the processor time of a short command, and the tests call hundreds of them. Each command is
still a process with its own environment, folder, streams and exit code. Tests of the start use the installed program.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NoReturn

ROOT = Path(__file__).parent.parent
PODIUM = str(Path(sys.executable).with_name("podium"))
MESSAGE_BYTES = 1 << 20
READ_AT_START = ("PYTHON", "LANG", "LC_", "LD_", "TZ")
"""The beginnings of variables that an interpreter reads only when it starts."""
SAME_AT_START = {"LANG": (None, "C.UTF-8")}
"""Values of such a variable with which an interpreter starts in the same way."""
COMMANDER = "podium.programs.commander"
PACKAGES = ("podium.cli.commands", "podium.engines.model", "podium.patterns", "podium.runs.assembly", "podium.tools")
MODULES = (
    "aiohttp",
    "podium.app",
    "podium.files.settings_reading",
    "podium.policy.shell_command",
    COMMANDER,
)


def run_podium_command(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], input: str | None = None, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a command until it has exited and its output is closed, like `subprocess.run`."""
    if not can_be_forked(env):
        stdin: dict[str, Any] = {"stdin": subprocess.DEVNULL} if input is None else {"input": input}
        return subprocess.run(
            [PODIUM, *arguments], cwd=cwd, env=env, capture_output=True, encoding="utf-8", timeout=timeout, **stdin
        )
    reading, writing = os.pipe()
    try:
        process = start_podium_command(arguments, cwd=cwd, env=env, stdin=reading)
    finally:
        os.close(reading)
    watchdog = threading.Timer(timeout, process.kill)
    watchdog.start()
    with os.fdopen(writing, "w", encoding="utf-8") as stdin_file, process:
        output, errors = _exchange(stdin_file, process.stdout, process.stderr, input or "")
        process.wait()
    watchdog.cancel()
    assert process.returncode is not None
    return subprocess.CompletedProcess(["podium", *arguments], process.returncode, output, errors)


class ForkedProcess:
    """A forked process, with the methods of `subprocess.Popen` that the tests use."""

    def __init__(self, pid: int, report: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._report = report

    def poll(self) -> int | None:
        with suppress(TimeoutError):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has exited. Raise TimeoutError if it takes longer than `timeout` seconds."""
        if self.returncode is None:
            self._report.settimeout(timeout)
            try:
                self.returncode = int(self._report.recv(MESSAGE_BYTES))
            except BlockingIOError as error:
                raise TimeoutError from error
            self._report.close()
        return self.returncode

    def send_signal(self, sign: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has exited, which is about to be reported
                os.kill(self.pid, sign)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkedCommand(ForkedProcess):
    """A forked command whose output is piped."""

    def __init__(self, pid: int, report: socket.socket, stdout: IO[str], stderr: IO[str]) -> None:
        super().__init__(pid, report)
        self.stdout = stdout
        self.stderr = stderr

    def __enter__(self) -> ForkedCommand:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.close()
        self.stderr.close()
        self.wait()


def start_podium_command(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdin: int | None = None
) -> ForkedCommand:
    """Start a command whose output is piped."""
    assert can_be_forked(env)
    outputs = [os.pipe() for _ in range(2)]
    with Path(os.devnull).open() as nothing:
        streams = (nothing.fileno() if stdin is None else stdin, outputs[0][1], outputs[1][1])
        pid, report = _start_preloaded().fork(streams, arguments, cwd=cwd, env=env)
    for _, theirs in outputs:
        os.close(theirs)
    stdout, stderr = (os.fdopen(ours, encoding="utf-8") for ours, _ in outputs)
    return ForkedCommand(pid, report, stdout, stderr)


def start_podium_in_terminal(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], rows: int, columns: int
) -> tuple[ForkedProcess, int]:
    """Start a command in a terminal of its own. Return it, and the descriptor of the other side of the terminal."""
    assert can_be_forked(env)
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (rows, columns))
    pid, report = _start_preloaded().fork([theirs] * 3, arguments, cwd=cwd, env=env, has_own_session=True)
    os.close(theirs)
    return ForkedProcess(pid, report), ours


def start_commander_process(*, env: Mapping[str, str], log: int) -> ForkedProcess | subprocess.Popen[bytes]:
    """Start a commander in a session of its own."""
    with Path(os.devnull).open("r+") as nothing:
        if not can_be_forked(env):
            command = [sys.executable, "-m", COMMANDER]
            return subprocess.Popen(
                command, stdin=nothing, stdout=nothing, stderr=log, env=env, cwd="/", start_new_session=True
            )
        pid, report = _start_preloaded().fork(
            [nothing.fileno(), nothing.fileno(), log],
            cwd=Path("/"),
            env=env,
            module=COMMANDER,
            has_own_session=True,
        )
    return ForkedProcess(pid, report)


def can_be_forked(env: Mapping[str, str]) -> bool:
    """Return whether a command with this environment behaves the same in a forked process."""
    base = _start_preloaded().environ
    changed = {name for name in {*env, *base} - {"PYTHONDONTWRITEBYTECODE"} if env.get(name) != base.get(name)}
    return not any(
        name.startswith(READ_AT_START) and not {env.get(name), base.get(name)} <= {*SAME_AT_START.get(name, ())}
        for name in changed
    )


class PreloadedPodium:
    """A process that forks commands. It exits when this process does, however that exits."""

    def __init__(self) -> None:
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Some tests find the processes of a home by this variable and kill them.
        self.environ = {name: value for name, value in os.environ.items() if name != "PODIUM_HOME"}
        command = [sys.executable, "-m", "tests.preloaded_podium", str(theirs.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=ROOT, env=self.environ)
        theirs.close()

    def close(self) -> None:
        self._connection.close()
        self._process.wait()

    def fork(
        self,
        streams: Sequence[int],
        arguments: Sequence[str] = (),
        *,
        cwd: Path,
        env: Mapping[str, str],
        **options: str | bool,
    ) -> tuple[int, socket.socket]:
        """Fork a program with these standard streams. Return its pid, and a socket that receives its exit code."""
        request = {"arguments": arguments, "folder": str(cwd), "env": dict(env), **options}
        report, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self._connection, [json.dumps(request).encode()], [*streams, theirs.fileno()])
        return int(report.recv(MESSAGE_BYTES)), report


@cache
def _start_preloaded() -> PreloadedPodium:
    """Start the process that forks commands for all tests of this process."""
    preloaded = PreloadedPodium()
    atexit.register(preloaded.close)
    return preloaded


def _exchange(stdin: IO[str], stdout: IO[str], stderr: IO[str], input: str) -> tuple[str, str]:
    """Write the input of a command, and return all that it prints on its two streams."""
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(stderr.read()))
    reader.start()
    with suppress(BrokenPipeError):
        stdin.write(input)
        stdin.close()
    output = stdout.read()
    reader.join()
    return output, found[0]


# The process that forks


def main() -> None:
    """Fork a process for each request until the connection closes."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    for module in (*MODULES, *_list_modules()):
        import_module(module)
    sys.path.remove(os.getcwd())  # noqa: PTH109 - as python -m spelled it
    while True:
        request, descriptors, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, 4)
        if not request:
            return
        if os.fork() == 0:
            connection.close()
            _supervise_command(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass


def _supervise_command(request: bytes, descriptors: Sequence[int]) -> NoReturn:
    """Fork a command, and report its pid and then its exit code."""
    *streams, report = descriptors
    pid = os.fork()
    if pid == 0:
        os.close(report)
        _run_command(streams, **json.loads(request))
    for descriptor in (0, 1, 2, *streams):
        os.close(descriptor)
    with suppress(BrokenPipeError), socket.socket(fileno=report) as reporting:
        reporting.send(str(pid).encode())
        reporting.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
    os._exit(0)


def _list_modules() -> Iterator[str]:
    for package in PACKAGES:
        for found in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
            yield found.name


def _run_command(
    streams: Sequence[int],
    arguments: list[str],
    folder: str,
    env: dict[str, str],
    module: str = "podium.cli",
    has_own_session: bool = False,
) -> NoReturn:
    """Continue as a program: by default `podium`, or the `main` of another module.

    With its own session, the program has its standard input as its controlling terminal if that is a terminal.
    """
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    for descriptor in set(streams) - {0, 1, 2}:
        os.close(descriptor)
    if has_own_session:
        os.setsid()
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # The streams of the process that forked may have been files, which have a position.
    sys.stdin = sys.__stdin__ = open(0, closefd=False, encoding="utf-8")  # type: ignore[misc]  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False, encoding="utf-8")  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", 1, closefd=False, encoding="utf-8")  # type: ignore[misc]  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["podium", *arguments]
    code = import_module(module).main()
    gc.freeze()  # as `podium` does
    sys.exit(code)


if __name__ == "__main__":
    main()
