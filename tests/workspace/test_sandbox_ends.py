"""Processes that a command starts end with it, and with Podium; their resources are limited."""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from podium.system.child_process import SandboxedCommand, build_environment, run_process
from podium.system.process_group import GRACE
from podium.workspace.sandbox.bubblewrap import PROTECTED_NAMES, Sandbox
from podium.workspace.sandbox.mounts import Placeholders
from podium.workspace.sandbox.resource_limits import MIB, ControlGroup, SandboxLimits

from .sandboxed import WHO, CommandResult, Place, new_place, ordinary_user, run_in_sandbox
from .test_sandbox import warm_up


@pytest.fixture(scope="module", autouse=True)
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    anyio.run(warm_up, tmp_path_factory.mktemp("warm"))
    with ordinary_user():
        yield


@pytest.fixture(params=WHO)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with new_place(request.param) as made:
        yield made


def find_processes(token: str) -> list[int]:
    """Return all processes on the machine that have this word in their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if token.encode() in (entry / "cmdline").read_bytes().split(b"\0") and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def make_lingering_script(token: str) -> str:
    """Make a script that starts a process which tries to survive it, and ends once that process is running."""
    inner = 'trap "" HUP TERM; echo begun >/tmp/begun; sleep 999; :'
    return f"mkfifo /tmp/begun; (setsid nohup bash -c '{inner}' {token} >/dev/null 2>&1 &); read -r </tmp/begun"


RUNNER = """
import anyio, sys
from pathlib import Path
from podium.system.child_process import build_environment, run_process
from podium.workspace.sandbox.bubblewrap import Sandbox

def take(chunk):
    print(chunk.decode(), flush=True)
    return True

async def main():
    sandbox = await Sandbox.find(Path(sys.argv[1]), home=Path(sys.argv[2]))
    argv = sandbox.wrap(["/bin/bash", "-c", sys.argv[3]])
    await run_process(argv, env=build_environment(), directory=sys.argv[1], timeout=600, take=take)

anyio.run(main)
"""


def test_nothing_survives_when_we_are_killed() -> None:
    token = f"token-{secrets.token_hex(8)}"
    script = f"{make_lingering_script(token)}; echo ready; sleep 999; :"
    with new_place(WHO[0]) as place:
        ours = subprocess.Popen(
            [sys.executable, "-c", RUNNER, str(place.repo), str(place.home), script], stdout=subprocess.PIPE
        )
        assert ours.stdout is not None
        assert ours.stdout.readline() == b"ready\n"
        found = {pid: os.pidfd_open(pid) for pid in find_processes(token)}

        ours.send_signal(signal.SIGKILL)
        ours.wait()
        ours.stdout.close()

        assert found
        for descriptor in found.values():
            assert select.select([descriptor], [], [], 2)[0]
            os.close(descriptor)
        assert find_processes(token) == []
        assert place.git("status", "--short") == ""


def test_nothing_survives_the_end_of_a_command(place: Place) -> None:
    token = f"token-{secrets.token_hex(8)}"

    done = place.bash(f"{make_lingering_script(token)}; echo done")

    assert done.text == "done\n"
    assert find_processes(token) == []


def test_a_late_command_that_ignores_signals_ends_with_all_it_started(place: Place) -> None:
    token = f"token-{secrets.token_hex(8)}"

    done = place.bash(f"trap '' TERM HUP; {make_lingering_script(token)}; echo begun; sleep 999", timeout=1)

    assert (done.text, done.is_late) == ("begun\n", True)
    assert find_processes(token) == []


async def test_the_first_process_inside_is_killed_with_the_command_also_while_it_begins(tmp_path: Path) -> None:
    token = f"token-{secrets.token_hex(8)}"
    groups: list[list[int]] = []
    (tmp_path / "repo").mkdir()
    sandbox = await Sandbox.find(tmp_path / "repo", home=tmp_path / "home")

    def look(_: bytes) -> bool:
        groups.append([os.getpgid(pid) for pid in find_processes(token)])
        return False

    script = ["/bin/bash", "-c", "echo begun; sleep 999; :", token]
    await run_process(
        sandbox.wrap(script), env=build_environment(), directory=str(sandbox.checkout), timeout=30, take=look
    )

    assert Counter(groups[0])[min(groups[0])] == 2  # a shell that is about to become a command looks like the command


async def test_a_command_that_is_cancelled_while_its_sandbox_starts_ends_at_once(tmp_path: Path) -> None:
    token = f"token-{secrets.token_hex(8)}"
    (tmp_path / "repo").mkdir()
    sandbox = await Sandbox.find(tmp_path / "repo", home=tmp_path / "home")

    async with anyio.create_task_group() as group:
        group.start_soon(run_in_sandbox, sandbox, ["/bin/bash", "-c", "sleep 999; :", token])
        with anyio.fail_after(30):
            while len(find_processes(token)) < 2:  # bubblewrap and the first process of the sandbox
                await anyio.lowlevel.checkpoint()
        cancelled_at = anyio.current_time()
        group.cancel_scope.cancel()

    # The first process of a PID namespace ignores SIGTERM, so waiting for it takes the whole grace period.
    assert anyio.current_time() - cancelled_at < GRACE
    assert find_processes(token) == []


def test_a_command_may_signal_its_own_group_and_go_on(place: Place) -> None:
    done = place.bash("trap '' TERM; kill -TERM 0; echo on")

    assert (done.code, done.text) == (0, "on\n")


FORKING = """
import os, signal
made = []
try:
    while len(made) < 2000:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        made.append(pid)
except OSError as error:
    print("refused", error.errno)
print(len(made))
"""


def test_the_number_of_processes_has_a_limit(place: Place) -> None:
    limits = SandboxLimits(processes=50)
    if place.who == "root" and not ControlGroup(limits).entrances:
        pytest.skip("root has no other means than control groups, and may make none here")

    done = place.python(FORKING, limits=limits)

    assert done.text.startswith("refused 11\n")
    assert int(done.text.split()[-1]) < 50


def test_memory_has_a_limit(place: Place) -> None:
    done = place.python("bytearray(10 ** 10)", limits=SandboxLimits(memory=200 * MIB))

    assert "MemoryError" in done.text


def test_files_and_private_folders_have_a_limit(place: Place) -> None:
    fill = "head -c 30000000 /dev/zero >{} ; echo $?; wc -c <{}"
    limits = SandboxLimits(file_size=10 * MIB, temporary=4 * MIB)

    in_checkout = place.bash(fill.format("big", "big"), limits=limits)
    in_private = place.bash(fill.format("/tmp/big", "/tmp/big"), limits=limits)
    in_memory = place.bash(fill.format("/dev/shm/big", "/dev/shm/big"), limits=limits)

    assert in_checkout.text.splitlines()[-1] == str(10 * MIB)
    assert in_private.text.splitlines()[-1] == in_memory.text.splitlines()[-1] == str(4 * MIB)


def test_a_command_that_fills_the_disk_is_ended_and_the_reason_is_reported(place: Place) -> None:
    async def fill_disk() -> CommandResult:
        free = os.statvfs(place.repo)
        limits = SandboxLimits(free_space=free.f_bavail * free.f_frsize - 200 * MIB)
        sandbox = await Sandbox.find(place.repo, home=place.home, limits=limits)
        command = sandbox.wrap(["/bin/bash", "-c", "fallocate -l 1G big; sleep 30"])
        ended = await run_process(
            command, env=build_environment(), directory=str(place.repo), timeout=20, take=lambda chunk: True
        )
        sandbox.remove_placeholders()
        assert isinstance(command, SandboxedCommand)
        return CommandResult(ended.code, "\n".join(command.notes), ended.has_timed_out)

    done = place.call(fill_disk)
    (place.repo / "big").unlink()

    assert done.text.startswith("the command was stopped because the disk is almost full: only ")
    assert not done.is_late


def test_a_fork_bomb_ends_with_its_command(place: Place) -> None:
    limits = SandboxLimits(processes=60)
    if place.who == "root" and not ControlGroup(limits).entrances:
        pytest.skip("root has no other means than control groups, and may make none here")
    token = f"bomb-{secrets.token_hex(8)}"

    done = place.bash(f"exec 2>/dev/null; {token}() {{ {token} | {token} & }}; {token}; sleep 0.2", limits=limits)

    assert not done.is_late
    assert find_processes(token) == []


def test_limits_cannot_be_raised_from_inside(place: Place) -> None:
    done = place.bash("ulimit -n 100000; ulimit -f unlimited; ulimit -n", limits=SandboxLimits(open_files=100))

    assert done.text.splitlines()[-1] == "100"


def test_control_groups_go_with_their_sandbox() -> None:
    group = ControlGroup(SandboxLimits())
    entrances = [Path(entrance) for entrance in group.entrances]

    del group

    assert not any(entrance.exists() for entrance in entrances)


def test_placeholders_stay_while_another_command_runs(tmp_path: Path) -> None:
    checkout = tmp_path / "repo"
    checkout.mkdir()
    (checkout / ".claude").mkdir()
    one, other = (Placeholders(checkout, PROTECTED_NAMES, home=tmp_path / "home") for _ in range(2))

    one.acquire()
    other.acquire()
    one.release()
    one.remove()
    during = {path.name for path in checkout.iterdir()}
    other.release()
    other.remove()

    assert during == set(PROTECTED_NAMES)
    assert [path.name for path in checkout.iterdir()] == [".claude"]


def test_placeholders_of_a_crash_go_with_the_next_command(tmp_path: Path) -> None:
    checkout = tmp_path / "repo"
    checkout.mkdir()
    crashed = Placeholders(checkout, PROTECTED_NAMES, home=tmp_path / "home")
    crashed.acquire()
    assert crashed._descriptor is not None
    os.close(crashed._descriptor)  # as the end of a process does
    (checkout / ".envrc").rmdir()
    (checkout / ".envrc").write_text("the person's")

    following = Placeholders(checkout, PROTECTED_NAMES, home=tmp_path / "home")
    following.acquire()
    following.release()
    following.remove()

    assert [path.name for path in checkout.iterdir()] == [".envrc"]


async def test_placeholders_go_by_themselves_when_no_command_follows(tmp_path: Path) -> None:
    checkout = tmp_path / "repo"
    checkout.mkdir()
    sandbox = await Sandbox.find(checkout, home=tmp_path / "home")

    await run_in_sandbox(sandbox, ["/bin/true"])

    with anyio.fail_after(40):
        while list(checkout.iterdir()):
            await anyio.lowlevel.checkpoint()  # a thread of Podium removes them without any notification


async def test_a_command_that_cannot_be_started_is_cleaned_up_too(tmp_path: Path) -> None:
    cleanups: list[str] = []
    wrapped = SandboxedCommand([str(tmp_path / "nonexistent")], lambda: cleanups.append("away"))

    with pytest.raises(OSError):
        await run_process(wrapped, env=build_environment(), directory=str(tmp_path), timeout=1, take=lambda chunk: True)

    assert cleanups == ["away"]


KILLED = """
import anyio, os, sys
from pathlib import Path
from podium.workspace.sandbox import self_test
from podium.workspace.sandbox.bubblewrap import Sandbox
checkout, home = map(Path, sys.argv[1:])
async def main():
    sandbox = await Sandbox.find(checkout, home=home)
    sandbox.wrap(["true"], {"a.txt": b"sealed"})
    async def die(*_):
        (checkout / next(path.name for path in home.glob("probe-*")).removesuffix("-seen")).touch()
        os.kill(os.getpid(), 9)
    self_test._run_for_output = die
    await self_test._probe_sandbox(sandbox)
anyio.run(main)
"""


def find_temporary_files(checkout: Path, home: Path) -> list[Path]:
    return [*checkout.glob("probe-*"), *home.rglob("probe-*"), *home.rglob("seal-*")]


async def test_what_a_killed_process_left_goes_with_the_next_start(tmp_path: Path) -> None:
    checkout, home = tmp_path / "repo", tmp_path / "home"
    checkout.mkdir()
    subprocess.run([sys.executable, "-c", KILLED, checkout, home], check=False)
    left = find_temporary_files(checkout, home)
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    kept = [
        home / "sandbox" / f"seal-{namespace}-{os.getpid()}-0123456789abcdef",
        home / "sandbox" / "seal-1-999999999-0123456789abcdef",
        checkout / "probe-of-the-person",
    ]
    for path in kept:
        path.touch()

    sandbox = await Sandbox.find(checkout, home=home)
    await run_in_sandbox(sandbox, ["/bin/true"])
    sandbox.remove_placeholders()

    assert len(left) == 3
    assert sorted(find_temporary_files(checkout, home)) == sorted(kept)
