"""A run in the terminal whose members are workers: their requests are prompted for there, or denied if nobody is."""

from __future__ import annotations

import getpass
import json
from typing import Any

import pytest
from anyio import to_thread

from podium.store.reader import StoreReader
from podium.values.event import PermissionAnswered, RunEnded, WorkerSent

from ..cli.conftest import Desk, read_until_exit
from ..cli.test_terminal import Terminal
from .worker_lab import SILENT, WorkerLab, bash, make_scripted_agent


def set_up_team(lab: WorkerLab, *moves: Any) -> Desk:
    """A desk in the yard, with a team whose one member works away."""
    lab.write_agent(make_scripted_agent(*(moves or (bash("touch one.txt"), "The member is done."))))
    team = {"mode": "broadcast", "members": ["hand"], "worktrees": "each"}
    text = f"---\ndescription: A crew.\nteam: {json.dumps(team)}\n---\nLead.\n"
    (lab.home / "agents" / "crew.md").write_text(text)
    return Desk(repo=lab.repo.path, home=lab.home, environment=lab.environ)


async def test_requests_of_a_worker_are_asked_at_the_terminal_of_the_run_that_sent_it(lab: WorkerLab) -> None:
    def approve_at_terminal() -> int:
        terminal = Terminal(set_up_team(lab), "run", "crew", "go")
        terminal.wait_for("[y] once")
        assert any("touch one.txt" in line for line in terminal.lines)
        terminal.process.send("y")
        return terminal.wait_exit()

    assert await to_thread.run_sync(approve_at_terminal) == 0

    [sent] = list_sent_workers(lab)
    [answered] = lab.events(sent.run, PermissionAnswered)
    assert (answered.by, answered.channel) == (getpass.getuser(), "terminal")
    assert lab.read_file(sent.branch, "one.txt") == ""
    await lab.wait_no_processes()


async def test_without_a_terminal_a_worker_is_denied_what_the_run_would_be(lab: WorkerLab) -> None:
    set_up_team(lab)

    done = await lab.run_podium("run", "crew", "go")

    assert done.returncode == 0, done.stderr
    [sent] = list_sent_workers(lab)
    [answered] = lab.events(sent.run, PermissionAnswered)
    assert (answered.decision, answered.channel) == ("deny", "unattended")
    await lab.wait_no_processes()


@pytest.mark.slow
async def test_members_with_checkouts_are_listed_with_their_team_and_deleted_with_it(lab: WorkerLab) -> None:
    set_up_team(lab)
    done = await lab.run_podium("run", "crew", "go")
    assert done.returncode == 0, done.stderr
    [sent] = list_sent_workers(lab)
    listed = json.loads((await lab.run_podium("ps", "--json")).stdout)["runs"]
    assert len({run["group"] for run in listed}) == 1
    assert sent.run in [run["id"] for run in listed]

    deleted = await lab.run_podium("group", "delete", "crew", "--yes")

    assert deleted.returncode == 0, deleted.stderr
    assert "2 runs were removed from all lists" in deleted.stderr
    assert f"({sent.branch}) was removed: " in deleted.stderr
    for command in ("ps", "workers"):
        found = json.loads((await lab.run_podium(command, "--all", "--json")).stdout)
        assert found["runs" if command == "ps" else "workers"] == []
    await lab.wait_no_processes()


async def test_members_that_still_work_are_ended_with_their_team(lab: WorkerLab) -> None:
    desk = set_up_team(lab, SILENT)
    with desk.start_podium("run", "crew", "go") as running:
        await lab.wait_called(1)
        deleted = await lab.run_podium("group", "delete", "crew", "--yes")
        await to_thread.run_sync(read_until_exit, running)

    assert deleted.returncode == 0, deleted.stderr
    [sent] = list_sent_workers(lab)
    assert lab.events(sent.run, RunEnded)[0].outcome == "cancelled"
    assert not lab.worktree_path(sent.branch).exists()
    await lab.wait_no_processes()


def list_sent_workers(lab: WorkerLab) -> list[WorkerSent]:
    with StoreReader(lab.store) as reader:
        runs = [summary.id for summary in reader.list_runs()]
    return [event for run in runs for event in lab.events(run, WorkerSent)]
