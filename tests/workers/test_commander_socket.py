from __future__ import annotations

import fcntl
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from podium.values.errors import StoreFailed
from podium.workers.commander_socket import SocketInUse, bind_socket, commander_socket_path


@pytest.fixture
def store() -> Iterator[Path]:
    """Return a path for a store that is short enough for a socket beside it."""
    with TemporaryDirectory(prefix="podium-") as folder:
        yield Path(folder, "s.db")


def is_listening(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == 0


def test_a_socket_is_in_a_directory_that_only_its_user_can_enter(store: Path) -> None:
    old = os.umask(0)
    try:
        with bind_socket(commander_socket_path(store)):
            path = commander_socket_path(store)
            modes = [stat.S_IMODE(os.lstat(one).st_mode) for one in (path.parent, path)]
    finally:
        os.umask(old)

    assert path.parent.parent == store.parent.resolve()
    assert modes == [0o700, 0o600]


def test_nothing_is_left_when_it_ends(store: Path) -> None:
    with bind_socket(commander_socket_path(store)) as listener:
        assert is_listening(commander_socket_path(store))

    assert listener.fileno() < 0
    assert list(commander_socket_path(store).parent.iterdir()) == []


def test_a_live_socket_is_never_stolen(store: Path) -> None:
    with bind_socket(commander_socket_path(store)):
        with (
            pytest.raises(SocketInUse, match="another commander is listening"),
            bind_socket(commander_socket_path(store)),
        ):
            pass

        assert is_listening(commander_socket_path(store))


def test_a_live_socket_whose_lock_was_removed_is_not_stolen_either(store: Path) -> None:
    path = commander_socket_path(store)
    with bind_socket(path):
        path.with_name("commander.lock").unlink()

        with pytest.raises(SocketInUse, match="another commander is listening"), bind_socket(path):
            pass

        assert is_listening(path)


def test_a_commander_that_holds_the_lock_but_no_socket_yet_is_not_overtaken(store: Path) -> None:
    with commander_socket_path(store).with_name("commander.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        with (
            pytest.raises(SocketInUse, match="another commander is listening"),
            bind_socket(commander_socket_path(store)),
        ):
            pass


HOLDER = """
import pathlib, sys
from podium.workers.commander_socket import SocketInUse, bind_socket, commander_socket_path

print("ready", flush=True)
sys.stdin.readline()
try:
    with bind_socket(commander_socket_path(pathlib.Path(sys.argv[1]))):
        print("held", flush=True)
        sys.stdin.readline()
except SocketInUse:
    print("refused", flush=True)
"""


def start_holder(store: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert read_output_line(process) == "ready"
    return process


def read_output_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def send_go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def test_a_stale_socket_is_replaced(store: Path) -> None:
    dead = start_holder(store)
    send_go(dead)
    assert read_output_line(dead) == "held"
    dead.send_signal(signal.SIGKILL)
    dead.communicate()
    assert stat.S_ISSOCK(os.lstat(commander_socket_path(store)).st_mode)

    with bind_socket(commander_socket_path(store)):
        assert is_listening(commander_socket_path(store))


def test_of_several_commanders_at_once_exactly_one_wins_also_over_a_stale_socket(store: Path) -> None:
    for _ in range(3):
        rivals = [start_holder(store) for _ in range(4)]
        for rival in rivals:
            send_go(rival)

        outcomes = sorted(read_output_line(rival) for rival in rivals)

        assert outcomes == ["held", "refused", "refused", "refused"]
        assert is_listening(commander_socket_path(store))
        for rival in rivals:
            rival.send_signal(signal.SIGKILL)
            rival.communicate()


BIND_REPEATEDLY = """
import os, pathlib, sys
from podium.workers.commander_socket import SocketInUse, bind_socket, commander_socket_path

store, witness = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[1] + "-witness")
held = 0
while held < 200:
    try:
        with bind_socket(commander_socket_path(store)):
            os.close(os.open(witness, os.O_CREAT | os.O_EXCL))
            witness.unlink()
            held += 1
    except SocketInUse:
        pass
"""


def test_however_often_commanders_come_and_go_there_are_never_two(store: Path) -> None:
    rivals = [subprocess.Popen([sys.executable, "-c", BIND_REPEATEDLY, str(store)]) for _ in range(4)]

    assert [rival.wait() for rival in rivals] == [0] * 4


def test_a_path_that_is_too_long_falls_back_to_the_runtime_directory(tmp_path: Path) -> None:
    store = tmp_path / ("long-" * 20) / "s.db"
    store.parent.mkdir()

    path = commander_socket_path(store)
    try:
        with bind_socket(path):
            assert is_listening(path)
        assert path == commander_socket_path(store)
        assert tmp_path not in path.parents
        assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700
    finally:
        path.parent.rmdir()


def test_a_path_that_no_socket_can_have_is_reported_in_one_sentence(store: Path) -> None:
    with pytest.raises(SocketInUse, match="cannot create a socket"), bind_socket(store.parent / ("x" * 120)):
        pass


def test_a_directory_that_others_can_enter_is_refused(store: Path) -> None:
    commander_socket_path(store).parent.chmod(0o755)

    with pytest.raises(StoreFailed, match="only you can access"):
        commander_socket_path(store)


def test_a_link_in_place_of_the_directory_is_refused(store: Path) -> None:
    folder = commander_socket_path(store).parent
    folder.rmdir()
    (store.parent / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(store.parent / "elsewhere")

    with pytest.raises(StoreFailed, match="only you can access"):
        commander_socket_path(store)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give a directory away")
def test_a_directory_of_somebody_else_is_refused(store: Path) -> None:
    os.chown(commander_socket_path(store).parent, 65534, 65534)

    with pytest.raises(StoreFailed, match="only you can access"):
        commander_socket_path(store)


def test_a_link_in_place_of_the_socket_is_refused_and_left_alone(store: Path) -> None:
    victim = store.parent / "victim"
    victim.write_text("precious")
    commander_socket_path(store).symlink_to(victim)

    with pytest.raises(SocketInUse, match="is not a socket"), bind_socket(commander_socket_path(store)):
        pass

    assert victim.read_text() == "precious"
    assert commander_socket_path(store).is_symlink()


def test_a_link_in_place_of_the_lock_is_refused_and_left_alone(store: Path) -> None:
    victim = store.parent / "victim"
    commander_socket_path(store).with_name("commander.lock").symlink_to(victim)

    with pytest.raises(SocketInUse, match="cannot open the lock file"), bind_socket(commander_socket_path(store)):
        pass

    assert not victim.exists()
