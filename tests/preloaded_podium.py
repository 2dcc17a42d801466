"""Run `podium` commands in processes that are forked from one that has already imported the commands.

Importing takes most of the processor time of a short command, and the tests call hundreds of them. Each command is
still a process with its own environment, folder, streams and exit code. Tests of the start use the installed program.
"""

from __future__ import annotations

import atexit
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parent.parent
PODIUM = str(Path(sys.executable).with_name("podium"))
MESSAGE_BYTES = 1 << 20
READ_AT_START = ("PYTHON", "LANG", "LC_", "LD_", "TZ")
"""The beginnings of variables that an interpreter reads only when it starts."""
PACKAGES = ("podium.cli.commands", "podium.engines.model", "podium.patterns", "podium.setup", "podium.tools")
MODULES = ("aiohttp", "podium.app", "podium.config.settings_reading", "podium.policy.shell_command")


def run_podium_command(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], input: str | None = None, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a command until it has exited and its output is closed, like `subprocess.run`."""
    preloaded = _start_preloaded()
    if preloaded.can_run(env):
        return preloaded.run(arguments, cwd=cwd, env=env, input=input, timeout=timeout)
    stdin: dict[str, Any] = {"stdin": subprocess.DEVNULL} if input is None else {"input": input}
    return subprocess.run(
        [PODIUM, *arguments], cwd=cwd, env=env, capture_output=True, encoding="utf-8", timeout=timeout, **stdin
    )


class PreloadedPodium:
    """A process that forks commands, one at a time. It exits when this process does, however that exits."""

    def __init__(self) -> None:
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Some tests find the processes of a home by this variable and kill them.
        self._environ = {name: value for name, value in os.environ.items() if name != "PODIUM_HOME"}
        self._lock = threading.Lock()
        command = [sys.executable, "-m", "tests.preloaded_podium", str(theirs.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=ROOT, env=self._environ)
        theirs.close()

    def close(self) -> None:
        self._connection.close()
        self._process.wait()

    def can_run(self, env: Mapping[str, str]) -> bool:
        """Return whether a command with this environment can be forked now."""
        names = {*env, *self._environ} - {"PYTHONDONTWRITEBYTECODE"}
        changed = {name for name in names if env.get(name) != self._environ.get(name)}
        return not self._lock.locked() and not any(name.startswith(READ_AT_START) for name in changed)

    def run(
        self, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], input: str | None, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Fork a command, and wait until it has exited and its output is closed."""
        request = {"arguments": arguments, "folder": str(cwd), "env": dict(env)}
        pipes = [os.pipe() for _ in range(3)]
        theirs, mine = zip(pipes[0], pipes[1][::-1], pipes[2][::-1], strict=True)
        with self._lock:
            socket.send_fds(self._connection, [json.dumps(request).encode()], theirs)
            for descriptor in theirs:
                os.close(descriptor)
            pid = int(self._connection.recv(MESSAGE_BYTES))
            watchdog = threading.Timer(timeout, os.kill, (pid, signal.SIGKILL))
            watchdog.start()
            output, errors = _exchange(mine, input or "")
            code = int(self._connection.recv(MESSAGE_BYTES))
            watchdog.cancel()
        return subprocess.CompletedProcess(["podium", *arguments], code, output, errors)


@cache
def _start_preloaded() -> PreloadedPodium:
    """Start the process that forks commands for all tests of this process."""
    preloaded = PreloadedPodium()
    atexit.register(preloaded.close)
    return preloaded


def _exchange(streams: Sequence[int], input: str) -> tuple[str, str]:
    """Write the input of a command, and return all that it prints on its two streams."""
    stdin, stdout, stderr = (os.fdopen(fd, mode, encoding="utf-8") for fd, mode in zip(streams, "wrr", strict=True))
    found: list[str] = []
    with stdin, stdout, stderr:
        reader = threading.Thread(target=lambda: found.append(stderr.read()))
        reader.start()
        with suppress(BrokenPipeError):
            stdin.write(input)
            stdin.close()
        output = stdout.read()
        reader.join()
    return output, found[0]


def main() -> None:
    """Fork a process for each request, one after the other, until the connection closes."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    for module in (*MODULES, *_list_modules()):
        import_module(module)
    sys.path.remove(os.getcwd())  # noqa: PTH109 - as python -m spelled it
    while True:
        request, descriptors, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, 3)
        if not request:
            return
        pid = os.fork()
        if pid == 0:
            connection.close()
            _run_command(descriptors, **json.loads(request))
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(str(pid).encode())
        connection.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


def _list_modules() -> Iterator[str]:
    for package in PACKAGES:
        for found in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
            yield found.name


def _run_command(streams: Sequence[int], arguments: list[str], folder: str, env: dict[str, str]) -> NoReturn:
    """Continue as the program `podium`."""
    from podium.cli import main as run_podium

    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    # The streams of the process that forked may have been files, which have a position.
    sys.stdin = sys.__stdin__ = open(0, closefd=False, encoding="utf-8")  # type: ignore[misc]  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False, encoding="utf-8")  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", 1, closefd=False, encoding="utf-8")  # type: ignore[misc]  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["podium", *arguments]
    sys.exit(run_podium())


if __name__ == "__main__":
    main()
