"""Slots: each worktree has its own number, ports and database name, in setup, in agents' commands and in teardown."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from podium.values.errors import Mistake
from podium.values.event import RunEnded, ToolAnswered
from podium.workspace.worktrees.worktree_slots import FILE, find_slot, lease_slot

from ..cli.worker_runs import invoke_podium
from .worker_lab import SILENT, WorkerLab, bash

SHOW = "echo $PODIUM_SLOT $PODIUM_PORT_1 $PODIUM_PORT_5 $PODIUM_DATABASE"


def make_worktrees(folder: Path, count: int) -> list[Path]:
    found = [folder / f"worktree-{number}" for number in range(count)]
    for one in found:
        one.mkdir()
    return found


def test_each_folder_keeps_its_slot_until_it_is_removed(tmp_path: Path) -> None:
    home, repo = tmp_path / "home", tmp_path / "My Shop!"
    first, second, third = make_worktrees(tmp_path, 3)

    one, two = (lease_slot(home, folder, repo) for folder in (first, second))

    assert one != two
    assert not set(one.ports) & set(two.ports)
    assert lease_slot(home, first, repo) == one
    assert one.database == f"podium_my_shop_{one.number}"
    first.rmdir()
    assert lease_slot(home, third, repo).number == one.number
    assert find_slot(home, second, repo) == two


def test_many_processes_at_once_get_different_slots(tmp_path: Path) -> None:
    folders = make_worktrees(tmp_path, 20)

    with ThreadPoolExecutor(8) as pool:
        slots = list(pool.map(lambda folder: lease_slot(tmp_path / "home", folder, tmp_path), folders))

    assert len({slot.number for slot in slots}) == 20


def test_a_port_that_another_program_uses_is_not_leased(tmp_path: Path) -> None:
    first, second = make_worktrees(tmp_path, 2)
    port = lease_slot(tmp_path / "home", first, tmp_path).ports[2]
    first.rmdir()

    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        slot = lease_slot(tmp_path / "home", second, tmp_path)

    assert port not in slot.ports


def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"slots": [')

    with pytest.raises(Mistake, match=r"slots\.json cannot be read .*; delete it if no worker is running"):
        lease_slot(tmp_path, tmp_path, tmp_path)


@pytest.mark.anyio
async def test_workers_that_run_at_once_see_their_own_slots_also_after_a_kill(lab: WorkerLab) -> None:
    lab.write_settings(
        "permissions: {allow: [Bash]}\n"
        f"worktrees: {{setup: '{SHOW} > setup.txt', teardown: '{SHOW} > ../repo/torn.txt; {SHOW}'}}\n"
    )
    runs = await lab.delegate_all({"feat/a": [bash("printenv PODIUM_SLOT PODIUM_PORT_1"), "done"], "feat/b": [SILENT]})
    lab.start_commander()
    await lab.wait_ended(runs[0])
    await lab.wait_called(3)
    (await lab.wait_worker(runs[1])).kill()
    await lab.wait_worker(runs[1], start=2)

    trees = {name: lab.worktree_path(name) for name in ("feat/a", "feat/b")}
    slots = {name: find_slot(lab.home, path, lab.repo.path) for name, path in trees.items()}
    assert slots["feat/a"]
    assert slots["feat/b"]
    assert slots["feat/a"] != slots["feat/b"]
    for name, path in trees.items():
        number, first, last, database = (path / "setup.txt").read_text().split()
        slot = slots[name]
        assert slot is not None
        assert (int(number), int(first), int(last)) == (slot.number, slot.ports[0], slot.ports[4])
        assert database == slot.database == f"podium_repo_{slot.number}"
    [answered] = lab.events(runs[0], ToolAnswered)
    assert answered.text.split()[:2] == [str(slots["feat/a"].number), str(slots["feat/a"].ports[0])]
    listed = json.loads((await invoke_podium(lab, "worktrees", "--json", "--repo", lab.root)).stdout)["worktrees"]
    assert {one["branch"]: one["slot"] for one in listed} == {
        name: slot.number for name, slot in slots.items() if slot is not None
    }
    lab.stop(runs[1])
    assert isinstance(await lab.wait_ended(runs[1]), RunEnded)
    removed = await invoke_podium(lab, "worktrees", "--repo", lab.root, "remove", "feat/a", "--force")
    assert removed.exit_code == 0, removed.stderr
    (again,) = make_worktrees(lab.folder, 1)
    assert lease_slot(lab.home, again, lab.repo.path).number == slots["feat/a"].number
