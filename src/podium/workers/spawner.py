"""The nursery: where a commander has its workers born.

They are copies of one small process, the cradle, which has loaded all that a worker needs. It is there when it is
needed, is started again where it is gone, and ends with its commander; its workers end with it. Only Linux has all
that this takes: elsewhere each worker is a new process that loads everything itself.
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
    open_process,
)
from anyio.abc import Process, TaskGroup, TaskStatus

from ..values.errors import OutsideFailed
from .fork_server import Birth, Born, Buried, Kill
from .wire.frame import LONGEST
from .wire.line_socket import Gone, Pipe
from .wire.link import whole

IS_POSSIBLE = sys.platform == "linux"

GRACE_SECONDS = 2.0
UNREAD_SECONDS = 60.0
LOST = -int(signal.SIGKILL)
"""How a worker ended whose nursery is gone: the system has killed it."""


@dataclass(slots=True, kw_only=True)
class Child:
    """A copy of the cradle."""

    pid: int = 0
    returncode: int | None = None
    trouble: str = "it is gone, and another takes its place when it is asked again"
    _home: Home
    _is_born: Event = field(default_factory=Event)
    _is_over: Event = field(default_factory=Event)

    async def wait(self) -> int:
        """How it ended, as soon as it has."""
        await self._is_over.wait()
        return LOST if self.returncode is None else self.returncode

    async def kill(self, sign: signal.Signals) -> None:
        """Send a signal to it and all of its group; nothing where it is over."""
        if not self._is_over.is_set():
            with suppress(Gone):
                await self._home.say(Kill(pid=self.pid, sign=sign))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawned:
    """A process that began from nothing."""

    process: Process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def returncode(self) -> int | None:
        return self.process.returncode

    async def wait(self) -> int:
        """How it ended, as soon as it has."""
        return await self.process.wait()

    async def kill(self, sign: signal.Signals) -> None:
        """Send a signal to it and all of its group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, sign)


class Nursery:
    """Where workers are born that have one environment. `is_forking` where they are copies of a cradle."""

    def __init__(self, group: TaskGroup, environ: Mapping[str, str], *, is_forking: bool) -> None:
        self._group = group
        self._environ = environ
        self._is_forking = is_forking
        self._home: Home | None = None
        self._opening = Lock()

    async def warm(self) -> int:
        """Have everything ready; the process whose children the next workers are. Raises OutsideFailed."""
        return (await self._opened()).pid if self._is_forking else os.getpid()

    async def born(self, line_for: Callable[[int], str], *, log: Path, folder: Path) -> Child | Spawned:
        """A worker whose standard input has the line for the child of a process. Raises OutsideFailed."""
        if self._is_forking:
            home = await self._opened()
            return await home.born(line_for(home.pid), log=log, folder=folder)
        return await _spawned(line_for(os.getpid()), log=log, folder=folder, environ=self._environ)

    async def _opened(self) -> Home:
        async with self._opening:
            if self._home is None or self._home.is_gone:
                self._home = await self._group.start(_kept, self._environ)
            assert self._home is not None
            return self._home


@asynccontextmanager
async def nursery(environ: Mapping[str, str], *, is_forking: bool = IS_POSSIBLE) -> AsyncIterator[Nursery]:
    """A nursery until the block ends. Copies of its cradle end with it; others are for who had them born to end."""
    async with create_task_group() as group:
        yield Nursery(group, environ, is_forking=is_forking)
        group.cancel_scope.cancel()


class Home:
    """One cradle, and who was born in it."""

    def __init__(self, pid: int, pipe: Pipe) -> None:
        self.pid = pid
        self.is_gone = False
        self._pipe = pipe
        self._sending = Lock()
        self._numbers = count(1)
        self._expected: dict[int, Child] = {}
        self._alive: dict[int, Child] = {}

    async def born(self, line: str, *, log: Path, folder: Path) -> Child:
        number = next(self._numbers)
        child = self._expected[number] = Child(_home=self)
        try:
            await self.say(Birth(number=number, line=line, log=str(log), folder=str(folder)))
            await child._is_born.wait()
        except Gone:
            pass
        except BaseException:
            # Nobody will ask for it any more, and it may be there in a moment.
            with CancelScope(shield=True), move_on_after(GRACE_SECONDS, shield=True):
                await child._is_born.wait()
                await child.kill(signal.SIGKILL)
            raise
        if not child.pid:
            raise OutsideFailed(f"the nursery has made no process for a worker: {child.trouble}", retryable=True)
        return child

    async def say(self, wish: Birth | Kill) -> None:
        """Ask for something. Raises Gone."""
        async with self._sending:
            await self._pipe.write(msgspec.json.encode(wish) + b"\n", within=UNREAD_SECONDS)

    async def listen(self) -> None:
        """Hear what becomes of the children, until there is nobody to tell."""
        try:
            while True:
                self._hear(msgspec.json.decode(whole(await self._pipe.line()), type=Born | Buried))
        except Gone:
            pass
        finally:
            self.is_gone = True
            for child in (*self._expected.values(), *self._alive.values()):
                child.returncode = LOST
                child._is_born.set()
                child._is_over.set()

    def _hear(self, news: Born | Buried) -> None:
        match news:
            case Born(number=number, pid=0, trouble=trouble):
                child = self._expected.pop(number)
                child.trouble = trouble
                child._is_born.set()
                child._is_over.set()
            case Born(number=number, pid=pid):
                child = self._alive[pid] = self._expected.pop(number)
                child.pid = pid
                child._is_born.set()
            case Buried(pid=pid, code=code):
                child = self._alive.pop(pid)
                child.returncode = code
                child._is_over.set()


async def _kept(environ: Mapping[str, str], *, task_status: TaskStatus[Home] = TASK_STATUS_IGNORED) -> None:
    """Have a cradle for as long as it lasts or is wanted. Raises OutsideFailed."""
    ours, theirs = socket.socketpair()
    pipe = Pipe(ours, longest=LONGEST)
    try:
        process = await open_process(
            [*_python("fork_server"), str(os.getpid())],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=None,
            env=environ,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        pipe.close()
        raise OutsideFailed(f"no process could be started for workers to be born from: {error}") from error
    finally:
        theirs.close()
    home = Home(process.pid, pipe)
    task_status.started(home)
    try:
        await home.listen()
    finally:
        pipe.close()
        with CancelScope(shield=True), suppress(ProcessLookupError):
            process.kill()
            await process.wait()


async def _spawned(line: str, *, log: Path, folder: Path, environ: Mapping[str, str]) -> Spawned:
    try:
        with log.open("ab") as file:
            process = await open_process(
                _python("worker_process"),
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                env=environ,
                cwd=folder,
                start_new_session=True,
            )
    except OSError as error:
        raise OutsideFailed(f"no process could be started for a worker: {error}") from error
    assert process.stdin is not None
    with suppress(BrokenResourceError):  # it has ended already, and how is told by its code
        await process.stdin.send(line.encode() + b"\n")
    await process.stdin.aclose()
    return Spawned(process=process)


def _python(module: str) -> list[str]:
    """How a module of ours is started: modules in the folder that it is started in are not ours, and not loaded."""
    return [sys.executable, "-P", "-m", f"podium.workers.{module}"]
