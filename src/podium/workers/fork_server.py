"""The cradle: a process that has loaded all that a worker needs, so that a copy of it is one at once.

It runs a single thread, holds no key, and does nothing but wait, fork and bury. What it is asked comes over its
standard input, a socket, one line of JSON each, and so go its answers. Only Linux has all that this takes.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import msgspec
from msgspec import Struct

from ..values.errors import PodiumError
from .wire.frame import LONGEST, Frames
from .wire.link import whole


class Birth(Struct, frozen=True, kw_only=True, tag="birth"):
    """What a worker is born with: the line that its standard input has, its log, and its folder."""

    number: int
    line: str
    log: str
    folder: str


class Kill(Struct, frozen=True, kw_only=True, tag="kill"):
    """A signal for a worker and all that it started."""

    pid: int
    sign: int


class Born(Struct, frozen=True, kw_only=True, tag="born"):
    """A worker has a process now; or has none, and why."""

    number: int
    pid: int = 0
    trouble: str = ""


class Buried(Struct, frozen=True, kw_only=True, tag="buried"):
    """A worker's process is over, and so is what was left of its group."""

    pid: int
    code: int


def main() -> int:
    """Wait, fork and bury, until the commander is gone."""
    from .worker_process import end_with

    end_with(int(sys.argv[1]))
    asked = socket.socket(fileno=os.dup(0))
    _prepare()
    with suppress(ConnectionError):
        _Cradle(asked).rock()
    return 0


READY = (
    "aiohttp",
    "podium.config.settings_reading",
    "podium.engines.model.anthropic_wire",
    "podium.engines.model.http_wire",
    "podium.engines.model.openai_wire",
    "podium.policy.shell_command",
    "podium.workers.local_placement",
    "podium.store.sqlite.worktree_ledger",
    "podium.tools.toolset",
    "podium.setup.sandbox_choice",
    "podium.workspace.worktrees.changes_commit",
    "podium.workspace.sandbox.bubblewrap",
    "podium.workspace.sandbox.self_test",
    "podium.workspace.worktrees.worktree",
)
"""What a worker loads only when it comes to it, and nearly every worker does."""


def _prepare() -> None:
    """Load all that a worker needs, so that nobody has to do it after being born."""
    import gc
    from importlib import import_module
    from tempfile import TemporaryDirectory

    import anyio

    from ..engines.model import model_prices
    from ..engines.names import REHEARSAL
    from ..workspace.sandbox import seccomp

    for module in READY:
        import_module(module)
    model_prices.load()
    # What cannot be done here cannot be done by a worker either, and that says so.
    with suppress(PodiumError, OSError), TemporaryDirectory() as home:
        seccomp.program()
        Path(home, "config.yaml").write_text(f"model: {REHEARSAL}\n", encoding="utf-8")
        anyio.run(_rehearse, home)
    # What is shared stays shared for longer where no collector goes over it.
    gc.collect()
    gc.freeze()


async def _rehearse(home: str) -> None:
    """Work on something once, so that whatever is made at its first use is made. No thread is left when it is done."""
    from ..app import App
    from ..setup.settings import Settings
    from ..values.agent import Agent

    environ = {"PODIUM_HOME": home}
    async with App(Settings.load(environ), environ=environ) as app:
        await app.run(Agent(name="worker", prompt="Rehearse."), "Rehearse.")


class _Cradle:
    """The children of this process, and who is told of them."""

    def __init__(self, asked: socket.socket) -> None:
        self._asked = asked
        self._frames = Frames(LONGEST)
        self._alive: set[int] = set()
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def rock(self) -> None:
        """Do what is asked, and tell who has ended, until nobody asks any more."""
        import select

        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        while True:
            ready, _, _ = select.select([self._asked.fileno(), self._woken], [], [])
            if self._woken in ready:
                os.read(self._woken, LONGEST)
                self._bury()
            if self._asked.fileno() in ready:
                data = self._asked.recv(LONGEST)
                if not data:
                    return
                for line in self._frames.feed(data):
                    self._do(msgspec.json.decode(whole(line), type=Birth | Kill))

    def _do(self, wish: Birth | Kill) -> None:
        match wish:
            case Birth(number=number):
                try:
                    self._tell(Born(number=number, pid=self._forked(wish)))
                except OSError as error:
                    self._tell(Born(number=number, trouble=str(error)))
            case Kill(pid=pid, sign=sign) if pid in self._alive:
                with suppress(ProcessLookupError):
                    os.killpg(pid, sign)

    def _forked(self, birth: Birth) -> int:
        """The id of a new process, which has all that is its own already."""
        waiting, settled = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            _live(birth, instead_of=(self._asked.fileno(), self._woken, self._wake, waiting), settled=settled)
        os.close(settled)
        os.read(waiting, 1)
        os.close(waiting)
        self._alive.add(pid)
        return pid

    def _bury(self) -> None:
        """Tell of those that have ended. Before its number can be given to others, a whole group is ended by it."""
        while self._alive:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return
            with suppress(ProcessLookupError):
                os.killpg(ended.si_pid, signal.SIGKILL)
            _, status = os.waitpid(ended.si_pid, 0)
            self._alive.discard(ended.si_pid)
            self._tell(Buried(pid=ended.si_pid, code=os.waitstatus_to_exitcode(status)))

    def _tell(self, news: Born | Buried) -> None:
        self._asked.sendall(msgspec.json.encode(news) + b"\n")


def _live(birth: Birth, *, instead_of: Iterable[int], settled: int) -> NoReturn:
    """Be a worker, in a process that was just forked, and end with it."""
    from .worker_process import TROUBLE, main

    code = TROUBLE
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in instead_of:
            os.close(descriptor)
        _settle(birth)
        os.close(settled)
        code = main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else TROUBLE
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        # Past everything that was to happen at the end of the process that this is a copy of.
        with suppress(OSError):
            sys.stderr.flush()
        os._exit(code)


def _settle(birth: Birth) -> None:
    """Be in the worker's folder, write to its log, and have its line to read."""
    log = os.open(birth.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    told, tell = os.pipe()
    os.write(tell, birth.line.encode() + b"\n")
    for own, standard in ((told, 0), (log, 1), (log, 2)):
        os.dup2(own, standard)
    for done in {told, tell, log} - {0, 1, 2}:
        os.close(done)
    os.chdir(birth.folder)


if __name__ == "__main__":
    sys.exit(main())
