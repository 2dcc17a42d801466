"""Commands in a sandbox, for tests: as the user who runs the tests and, if that is root, also as an ordinary user."""

from __future__ import annotations

import ctypes
import json
import os
import pwd
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from podium.system.child_process import ProcessExit, build_environment, run_process
from podium.testing import make_repository
from podium.workspace.sandbox.bubblewrap import Sandbox

USER = "podium-test"
WHO = ("root", "user") if os.geteuid() == 0 else ("user",)
PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
SET_DUMPABLE = 4


@dataclass
class CommandResult:
    """The result of a command."""

    code: int
    text: str
    is_late: bool = False


@dataclass
class Place:
    """A repository and a Podium home, and commands that run in the sandbox of that repository."""

    who: str
    folder: Path
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def repo(self) -> Path:
        return self.folder / "repo"

    @property
    def home(self) -> Path:
        return self.folder / "podium"

    def git(self, *args: str) -> str:
        # The repository is examined as its owner; otherwise git would refuse to use it.
        identity = [] if self.who == "root" or os.geteuid() != 0 else ["setpriv", f"--reuid={USER}", "--clear-groups"]
        env = {**os.environ, "HOME": str(self.folder)}
        done = subprocess.run(
            [*identity, "git", *args], cwd=self.repo, check=True, capture_output=True, text=True, env=env
        )
        return done.stdout

    def bash(self, script: str, *args: str, timeout: float = 30, **options: Any) -> CommandResult:
        """Run a script in a sandbox made for it."""
        return self.run(["/bin/bash", "-c", script, "bash", *args], timeout=timeout, **options)

    def python(self, script: str, *args: str, **options: Any) -> CommandResult:
        return self.run([PYTHON, "-c", script, *args], **options)

    def run(self, argv: list[str], *, timeout: float = 30, **options: Any) -> CommandResult:
        async def find_and_run() -> CommandResult:
            sandbox = await Sandbox.find(self.repo, **{"home": self.home, **self.options, **options})
            try:
                return await run_in_sandbox(sandbox, argv, timeout=timeout)
            finally:
                sandbox.remove_placeholders()

        return self.call(find_and_run)

    def call(self, main: Callable[[], Awaitable[CommandResult]]) -> CommandResult:
        """Run a function as the owner of the repository."""
        return anyio.run(main) if self.who == "root" or os.geteuid() != 0 else self._run_as_user(main)

    def _run_as_user(self, main: Any) -> CommandResult:
        """Run it in the user's process: forked, because an ordinary user may not be able to read our interpreter."""
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                _switch_user(USER, self.folder)
                result = anyio.run(main)
                os.write(writing, json.dumps([result.code, result.text, result.is_late]).encode())
            except BaseException:
                os.write(writing, json.dumps([-1, traceback.format_exc(), False]).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            answer = pipe.read()
        os.waitpid(pid, 0)
        return CommandResult(*json.loads(answer))


async def run_in_sandbox(sandbox: Sandbox, argv: list[str], *, timeout: float = 30) -> CommandResult:
    text = bytearray()

    def take(chunk: bytes) -> bool:
        text.extend(chunk)
        return True

    ended: ProcessExit = await run_process(
        sandbox.wrap(argv), env=build_environment(), directory=str(sandbox.checkout), timeout=timeout, take=take
    )
    return CommandResult(ended.code, text.decode(errors="replace"), ended.has_timed_out)


def _switch_user(user: str, folder: Path) -> None:
    entry = pwd.getpwnam(user)
    os.environ["HOME"] = str(folder / "person")
    os.setgroups([])
    os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
    os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
    # After a change of user, a process is not accessible to that user until it makes itself dumpable.
    ctypes.CDLL(None).prctl(SET_DUMPABLE, 1, 0, 0, 0)
    os.chdir("/")


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Make an ordinary user available during the block."""
    if os.geteuid() != 0:
        yield
        return
    try:
        pwd.getpwnam(USER)
        is_new = False
    except KeyError:
        subprocess.run(["useradd", "--system", "--no-create-home", USER], check=True, capture_output=True)
        is_new = True
    try:
        yield
    finally:
        if is_new:
            subprocess.run(["userdel", USER], check=False, capture_output=True)


@contextmanager
def new_place(who: str) -> Iterator[Place]:
    """Make a repository with one commit that belongs to the given user."""
    with tempfile.TemporaryDirectory(prefix="sandbox-") as name:
        place = Place(who, Path(name).resolve())
        for folder in (place.home, place.folder / "person"):
            folder.mkdir()
        make_repository(place.repo, {"a.txt": "one\n"})
        if who == "user" and os.geteuid() == 0:
            subprocess.run(["chown", "-R", USER, name], check=True)
        yield place
