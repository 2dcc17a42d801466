"""The spawner and its fork server: workers start at once, in their own processes, and none outlives the spawner."""

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
from anyio.lowlevel import checkpoint

from podium.workers.spawner import CAN_FORK, LOST_EXIT_CODE, ForkedProcess, FreshProcess, Spawner, open_spawner
from podium.workers.worker_process import EXIT_FAILED, EXIT_INTERRUPTED

pytestmark = pytest.mark.skipif(not CAN_FORK, reason="only Linux has everything that the spawner needs")

LONG = 30.0


@asynccontextmanager
async def start_spawner(*, is_forking: bool = True, **environ: str) -> AsyncIterator[Spawner]:
    with fail_after(LONG):
        async with open_spawner({**os.environ, **environ}, is_forking=is_forking) as spawner:
            yield spawner


forked_or_fresh = pytest.mark.parametrize("is_forking", [True, False], ids=["forked", "spawned"])


HANDSHAKE = {"type": "handshake", "worker": "r1", "token": "t"}


@contextmanager
def open_silent_socket() -> Iterator[str]:
    """Open a socket that accepts connections but never answers, so that workers wait for their welcome message."""
    with TemporaryDirectory(prefix="podium-") as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/s")
        listener.listen(64)
        yield f"{folder}/s"


async def spawn_worker(spawner: Spawner, folder: Path, *, at: str = "/nowhere") -> ForkedProcess | FreshProcess:
    """Spawn a worker that connects to a commander at this address."""

    def make_input_line(parent: int) -> str:
        return json.dumps({"socket": at, "parent": parent, "handshake": HANDSHAKE})

    return await spawner.spawn(make_input_line, log=folder / "log", folder=folder)


def has_exited(pid: int) -> bool:
    """Return whether a process has ended, or ends soon."""
    try:
        ending = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([ending], [], [], 10)[0])
    finally:
        os.close(ending)


@forked_or_fresh
async def test_a_worker_is_spawned_and_its_exit_is_reported(is_forking: bool, tmp_path: Path) -> None:
    async with start_spawner(is_forking=is_forking) as spawner:
        worker = await spawn_worker(spawner, tmp_path)

        code = await worker.wait()

    assert code == worker.returncode == EXIT_INTERRUPTED


@forked_or_fresh
async def test_a_worker_has_a_session_a_folder_and_a_log_of_its_own(is_forking: bool, tmp_path: Path) -> None:
    with open_silent_socket() as socket_path:
        async with start_spawner(is_forking=is_forking, SEEN="yes") as spawner:
            worker = await spawn_worker(spawner, tmp_path, at=socket_path)

            assert os.getsid(worker.pid) == worker.pid
            assert Path(f"/proc/{worker.pid}/cwd").readlink() == tmp_path
            assert {Path(f"/proc/{worker.pid}/fd/{number}").readlink() for number in (1, 2)} == {tmp_path / "log"}
            while not (environ := Path(f"/proc/{worker.pid}/environ").read_bytes()):
                await checkpoint()  # it is empty while the new program is being loaded
            assert b"SEEN=yes" in environ.split(b"\0")
            await worker.kill(signal.SIGKILL)
            await worker.wait()


async def test_a_worker_inherits_no_socket_of_the_fork_server(tmp_path: Path) -> None:
    with open_silent_socket() as socket_path:
        async with start_spawner() as spawner:
            first, second = [await spawn_worker(spawner, tmp_path, at=socket_path) for _ in range(2)]
            fork_server_sockets = list_sockets(await spawner.warm_up())

            assert fork_server_sockets
            assert not fork_server_sockets & (list_sockets(first.pid) | list_sockets(second.pid))


def list_sockets(pid: int) -> set[str]:
    """Return the open sockets of a process, by the system's names for them."""
    links = [str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir()]
    return {link for link in links if link.startswith("socket:")}


async def test_many_workers_are_spawned_at_once(tmp_path: Path) -> None:
    workers: list[ForkedProcess | FreshProcess] = []

    async def spawn_one(spawner: Spawner) -> None:
        workers.append(await spawn_worker(spawner, tmp_path))

    async with start_spawner() as spawner:
        async with create_task_group() as group:
            for _ in range(20):
                group.start_soon(spawn_one, spawner)
        codes = [await worker.wait() for worker in workers]

    assert len({worker.pid for worker in workers}) == 20
    assert codes == [EXIT_INTERRUPTED] * 20


@forked_or_fresh
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
async def test_a_worker_can_be_killed(sign: signal.Signals, is_forking: bool, tmp_path: Path) -> None:
    with open_silent_socket() as socket_path:
        async with start_spawner(is_forking=is_forking) as spawner:
            worker = await spawn_worker(spawner, tmp_path, at=socket_path)

            await worker.kill(sign)

            assert await worker.wait() == -sign


@forked_or_fresh
async def test_killing_a_worker_that_has_exited_does_nothing(is_forking: bool, tmp_path: Path) -> None:
    async with start_spawner(is_forking=is_forking) as spawner:
        worker = await spawn_worker(spawner, tmp_path)
        await worker.wait()

        await worker.kill(signal.SIGKILL)

        assert await worker.wait() == EXIT_INTERRUPTED


async def test_an_error_in_a_worker_is_in_its_log_and_the_fork_server_keeps_running(tmp_path: Path) -> None:
    async with start_spawner() as spawner:
        worker = await spawner.spawn(lambda _: "no hello", log=tmp_path / "log", folder=tmp_path)
        lost = await spawner.spawn(lambda _: "{}", log=tmp_path / "log of the lost", folder=tmp_path / "missing")

        assert await worker.wait() == EXIT_FAILED
        assert await lost.wait() == EXIT_FAILED
        assert await (await spawn_worker(spawner, tmp_path)).wait() == EXIT_INTERRUPTED
    assert (tmp_path / "log").read_text() != ""
    assert "missing" in (tmp_path / "log of the lost").read_text()


@forked_or_fresh
async def test_modules_in_the_folder_of_a_worker_are_not_loaded(is_forking: bool, tmp_path: Path) -> None:
    for name in ("podium", "anyio", "aiohttp", "random", "zipfile"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'loaded')!r}, 'w')")

    async with start_spawner(is_forking=is_forking) as spawner:
        worker = await spawn_worker(spawner, tmp_path)
        code = await worker.wait()

    assert code == EXIT_INTERRUPTED
    assert not (tmp_path / "loaded").exists()


async def test_workers_exit_with_their_fork_server_and_the_next_is_spawned_by_another(tmp_path: Path) -> None:
    with open_silent_socket() as socket_path:
        async with start_spawner() as spawner:
            worker = await spawn_worker(spawner, tmp_path, at=socket_path)
            first = await spawner.warm_up()

            os.kill(first, signal.SIGKILL)

            assert await worker.wait() == LOST_EXIT_CODE
            assert has_exited(worker.pid)
            assert await (await spawn_worker(spawner, tmp_path)).wait() == EXIT_INTERRUPTED
            assert await spawner.warm_up() != first


async def test_everything_ends_with_the_block(tmp_path: Path) -> None:
    with open_silent_socket() as socket_path:
        async with start_spawner() as spawner:
            worker = await spawn_worker(spawner, tmp_path, at=socket_path)
            fork_server = await spawner.warm_up()

        assert has_exited(worker.pid)
        assert has_exited(fork_server)


COMMANDER = """
import json, sys, anyio
from pathlib import Path
from podium.workers.spawner import open_spawner

async def main(folder, place):
    async with open_spawner({}) as there:
        home = await there.warm_up()
        handshake = {"type": "handshake", "worker": "r1", "token": "t"}
        hello = lambda parent: json.dumps({"socket": place, "parent": parent, "handshake": handshake})
        worker = await there.spawn(hello, log=Path(folder, "log"), folder=Path(folder))
        print(home, worker.pid, flush=True)
        await anyio.sleep_forever()

anyio.run(main, *sys.argv[1:])
"""


def test_everything_ends_with_the_commander_however_that_ends(tmp_path: Path) -> None:
    with open_silent_socket() as socket_path:
        command = [sys.executable, "-c", COMMANDER, str(tmp_path), socket_path]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as commander:
            assert commander.stdout is not None
            fork_server, worker = map(int, commander.stdout.readline().split())

            commander.kill()

        assert has_exited(fork_server)
        assert has_exited(worker)
