"""The nursery: workers are born at once, in processes of their own, and none outlives it."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from anyio import create_task_group, fail_after

from podium.workers.spawner import CAN_FORK, LOST_EXIT_CODE, ForkedProcess, FreshProcess, Spawner, open_spawner
from podium.workers.worker_process import EXIT_FAILED, EXIT_INTERRUPTED

pytestmark = pytest.mark.skipif(not CAN_FORK, reason="only Linux has all that a nursery takes")

LONG = 30.0


@asynccontextmanager
async def opened(*, is_forking: bool = True, **environ: str) -> AsyncIterator[Spawner]:
    with fail_after(LONG):
        async with open_spawner({**os.environ, **environ}, is_forking=is_forking) as there:
            yield there


both = pytest.mark.parametrize("is_forking", [True, False], ids=["forked", "spawned"])


@contextmanager
def nobody() -> Iterator[str]:
    """A socket that takes connections and never answers: a worker waits there for its welcome."""
    with TemporaryDirectory(prefix="podium-") as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/s")
        listener.listen(64)
        yield f"{folder}/s"


async def born(there: Spawner, folder: Path, *, at: str = "/nowhere") -> ForkedProcess | FreshProcess:
    """A worker that looks for its commander at a place."""

    def hello(parent: int) -> str:
        return json.dumps({"socket": at, "run": "r1", "token": "t", "parent": parent})

    return await there.spawn(hello, log=folder / "log", folder=folder)


def is_gone(pid: int) -> bool:
    """Whether a process has ended, or does so soon."""
    try:
        ending = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([ending], [], [], 10)[0])
    finally:
        os.close(ending)


@both
async def test_a_worker_is_born_and_its_end_is_told(is_forking: bool, tmp_path: Path) -> None:
    async with opened(is_forking=is_forking) as there:
        worker = await born(there, tmp_path)

        code = await worker.wait()

    assert code == worker.returncode == EXIT_INTERRUPTED


@both
async def test_a_worker_has_a_session_a_folder_and_a_log_of_its_own(is_forking: bool, tmp_path: Path) -> None:
    with nobody() as place:
        async with opened(is_forking=is_forking, SEEN="yes") as there:
            worker = await born(there, tmp_path, at=place)

            assert os.getsid(worker.pid) == worker.pid
            assert Path(f"/proc/{worker.pid}/cwd").readlink() == tmp_path
            assert {Path(f"/proc/{worker.pid}/fd/{number}").readlink() for number in (1, 2)} == {tmp_path / "log"}
            assert b"SEEN=yes" in Path(f"/proc/{worker.pid}/environ").read_bytes().split(b"\0")
            await worker.kill(signal.SIGKILL)
            await worker.wait()


async def test_a_worker_holds_nothing_that_the_nursery_has_open(tmp_path: Path) -> None:
    with nobody() as place:
        async with opened() as there:
            first, second = [await born(there, tmp_path, at=place) for _ in range(2)]
            nursery_has = sockets(await there.warm_up())

            assert nursery_has
            assert not nursery_has & (sockets(first.pid) | sockets(second.pid))


def sockets(pid: int) -> set[str]:
    """The sockets that a process has open, by the system's names for them."""
    links = [str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir()]
    return {link for link in links if link.startswith("socket:")}


async def test_many_are_born_at_once(tmp_path: Path) -> None:
    workers: list[ForkedProcess | FreshProcess] = []

    async def one(there: Spawner) -> None:
        workers.append(await born(there, tmp_path))

    async with opened() as there:
        async with create_task_group() as group:
            for _ in range(20):
                group.start_soon(one, there)
        codes = [await worker.wait() for worker in workers]

    assert len({worker.pid for worker in workers}) == 20
    assert codes == [EXIT_INTERRUPTED] * 20


@both
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
async def test_a_worker_can_be_ended(sign: signal.Signals, is_forking: bool, tmp_path: Path) -> None:
    with nobody() as place:
        async with opened(is_forking=is_forking) as there:
            worker = await born(there, tmp_path, at=place)

            await worker.kill(sign)

            assert await worker.wait() == -sign


@both
async def test_ending_one_that_is_over_does_nothing(is_forking: bool, tmp_path: Path) -> None:
    async with opened(is_forking=is_forking) as there:
        worker = await born(there, tmp_path)
        await worker.wait()

        await worker.kill(signal.SIGKILL)

        assert await worker.wait() == EXIT_INTERRUPTED


async def test_what_goes_wrong_in_a_worker_is_in_its_log_and_the_nursery_goes_on(tmp_path: Path) -> None:
    async with opened() as there:
        worker = await there.spawn(lambda _: "no hello", log=tmp_path / "log", folder=tmp_path)
        lost = await there.spawn(lambda _: "{}", log=tmp_path / "log of the lost", folder=tmp_path / "missing")

        assert await worker.wait() == EXIT_FAILED
        assert await lost.wait() == EXIT_FAILED
        assert await (await born(there, tmp_path)).wait() == EXIT_INTERRUPTED
    assert (tmp_path / "log").read_text() != ""
    assert "missing" in (tmp_path / "log of the lost").read_text()


@both
async def test_modules_in_the_folder_of_a_worker_are_not_loaded(is_forking: bool, tmp_path: Path) -> None:
    for name in ("podium", "anyio", "aiohttp", "random", "zipfile"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'loaded')!r}, 'w')")

    async with opened(is_forking=is_forking) as there:
        worker = await born(there, tmp_path)
        code = await worker.wait()

    assert code == EXIT_INTERRUPTED
    assert not (tmp_path / "loaded").exists()


async def test_workers_end_with_their_nursery_and_the_next_is_born_in_another(tmp_path: Path) -> None:
    with nobody() as place:
        async with opened() as there:
            worker = await born(there, tmp_path, at=place)
            first = await there.warm_up()

            os.kill(first, signal.SIGKILL)

            assert await worker.wait() == LOST_EXIT_CODE
            assert is_gone(worker.pid)
            assert await (await born(there, tmp_path)).wait() == EXIT_INTERRUPTED
            assert await there.warm_up() != first


async def test_everything_ends_with_the_block(tmp_path: Path) -> None:
    with nobody() as place:
        async with opened() as there:
            worker = await born(there, tmp_path, at=place)
            home = await there.warm_up()

        assert is_gone(worker.pid)
        assert is_gone(home)


COMMANDER = """
import json, sys, anyio
from pathlib import Path
from podium.workers.spawner import open_spawner

async def main(folder, place):
    async with open_spawner({}) as there:
        home = await there.warm_up()
        hello = lambda parent: json.dumps({"socket": place, "run": "r1", "token": "t", "parent": parent})
        worker = await there.spawn(hello, log=Path(folder, "log"), folder=Path(folder))
        print(home, worker.pid, flush=True)
        await anyio.sleep_forever()

anyio.run(main, *sys.argv[1:])
"""


def test_everything_ends_with_the_commander_however_that_ends(tmp_path: Path) -> None:
    with nobody() as place:
        command = [sys.executable, "-c", COMMANDER, str(tmp_path), place]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as commander:
            assert commander.stdout is not None
            home, worker = map(int, commander.stdout.readline().split())

            commander.kill()

        assert is_gone(home)
        assert is_gone(worker)
