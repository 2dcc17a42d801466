from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podium.runs.queries.run_listing import MOST_ENDED

from ..preloaded_podium import PODIUM
from .conftest import SLOW, TOO_LONG, Desk, read_until_exit, wait_for


def finish_run(desk: Desk, request: str = "do it", *, agent: str = "lead", repo: str | None = None) -> str:
    """Make a run that has ended, in this repository or another one, and return its id."""
    desk.write_agent("lead", "the answer")
    place: tuple[str, ...] = ()
    if repo is not None:
        folder = desk.repo.parent / f"{desk.repo.name}-{repo}" / repo
        (folder / ".git").mkdir(parents=True, exist_ok=True)
        agents = folder / ".podium" / "agents"
        agents.mkdir(parents=True, exist_ok=True)
        for file in (desk.repo / ".podium" / "agents").iterdir():
            (agents / file.name).write_bytes(file.read_bytes())
        place = ("--repo", str(folder))
    said = desk.invoke("run", agent, request, *place)
    assert said.exit_code == 0, said.stderr
    return desk.run_id()


def write_team(desk: Desk, *moves: str | dict[str, Any]) -> None:
    """Write a team called squad, whose member follows these script steps."""
    desk.write_agent("squad", team={"mode": "broadcast", "members": ["one"]})
    desk.write_agent("one", *moves)


def read_ps_json(desk: Desk, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(desk.invoke("ps", "--json", *options).stdout)
    return found


def test_runs_of_one_group_are_listed_without_a_heading(desk: Desk) -> None:
    runs = [finish_run(desk), finish_run(desk)]

    lines = desk.invoke("ps").stdout.splitlines()

    assert [line.split()[0] for line in lines] == ["RUN", *reversed(runs)]


def test_an_agent_that_reflects_alone_is_listed_with_the_others(desk: Desk) -> None:
    finish_run(desk)

    desk.invoke("run", "lead", "do it", "--reflect", "--max", "1")

    assert len(desk.runs()) == 2
    assert "team lead" not in desk.invoke("ps").stdout
    assert [group["kind"] for group in read_ps_json(desk)["groups"]] == ["repo", "default"]


def test_runs_of_several_groups_are_listed_apart_the_newest_first(desk: Desk) -> None:
    write_team(desk, "the part")
    here = finish_run(desk)
    there = finish_run(desk, repo="lib")
    ours = finish_run(desk, agent="squad")

    lines = desk.invoke("ps").stdout.splitlines()

    flat = desk.invoke("ps", "--flat").stdout.splitlines()

    assert [line.split()[0] for line in flat] == ["RUN", ours, there, here]
    assert [line.split()[0] if line else "" for line in lines] == [
        *("RUN", "", "squad", ours, "", "lib", there, "", desk.repo.name, here)
    ]
    assert f"team squad in {desk.repo}" in lines[2]


def test_pinned_groups_are_listed_first_and_then_ordered_ones(desk: Desk) -> None:
    for repo in ("one", "two", "three", "four"):
        finish_run(desk, repo=repo)

    desk.invoke("group", "order", "two", "one")
    desk.invoke("group", "pin", "three")

    listing = desk.invoke("group", "list").stdout.splitlines()
    shown = desk.invoke("ps").stdout
    assert [line.split()[0] for line in listing] == ["GROUP", "g4", "g3", "g2", "g5", "g1"]
    assert "[pinned] three" in listing[1]
    assert sorted(("one", "two", "three", "four"), key=lambda name: shown.index(f"{name}  ")) == [
        *("three", "two", "one", "four")
    ]
    assert desk.invoke("group", "order", "--newest").exit_code == 0
    assert [line.split()[0] for line in desk.invoke("group").stdout.splitlines()] == [
        *("GROUP", "g4", "g5", "g3", "g2", "g1")
    ]


def test_a_run_is_pinned_named_and_ordered_by_its_id(desk: Desk) -> None:
    first, second, third = finish_run(desk), finish_run(desk), finish_run(desk)

    assert desk.invoke("group", "rename", first[:8], "the first one").exit_code == 0
    assert desk.invoke("group", "pin", second).stderr == f"run {second} is pinned\n"
    assert desk.invoke("group", "order", first, third).exit_code == 0

    lines = desk.invoke("ps").stdout.splitlines()[1:]
    assert [line.split()[0] for line in lines] == [second, first, third]
    assert lines[0].endswith("  [pinned] do it")
    assert lines[1].endswith("  the first one")
    assert desk.invoke("group", "rename", first).exit_code == 0
    assert desk.invoke("group", "order", "--newest", "g2").exit_code == 0
    assert desk.invoke("group", "unpin", second).exit_code == 0
    assert [line.split()[0] for line in desk.invoke("ps").stdout.splitlines()[1:]] == [third, second, first]


def test_what_is_archived_is_left_out_until_all_is_asked_for(desk: Desk) -> None:
    here, there = finish_run(desk), finish_run(desk, repo="lib")
    desk.invoke("group", "archive", here, "lib")

    said = desk.invoke("ps")

    assert said.stdout.split() == ["RUN", "STATE", "AGENT", "STARTED", "TOOK", "REQUEST"]
    assert said.stderr == "not shown: 2 archived runs; run podium ps --all to list all runs\n"
    assert read_ps_json(desk)["runs"] == []
    assert [run["id"] for run in read_ps_json(desk, "--all")["runs"] if run["archived"]] == [there, here]
    assert "lib" not in desk.invoke("group", "list").stdout
    assert "[archived] lib" in desk.invoke("group", "list", "--all").stdout
    desk.invoke("group", "unarchive", here)
    assert [run["id"] for run in read_ps_json(desk)["runs"]] == [here]


def test_a_new_run_in_an_archived_group_is_seen(desk: Desk) -> None:
    finish_run(desk, repo="lib")
    desk.invoke("group", "archive", "lib")

    run = finish_run(desk, repo="lib")

    assert run in [one["id"] for one in read_ps_json(desk)["runs"]]


def test_pinned_runs_are_listed_however_old_they_are(desk: Desk) -> None:
    oldest = finish_run(desk)
    desk.invoke("group", "pin", oldest)
    for _ in range(MOST_ENDED + 1):
        finish_run(desk)

    said = desk.invoke("ps")

    assert said.stdout.splitlines()[1].startswith(oldest)
    assert len(said.stdout.splitlines()) == MOST_ENDED + 2
    assert said.stderr == "not shown: 1 older ended run; run podium ps --all to list all runs\n"


def test_json_output_has_a_flat_list_of_runs_and_a_list_of_groups(desk: Desk) -> None:
    here, there = finish_run(desk), finish_run(desk, repo="lib")
    desk.invoke("group", "pin", "g2", here)

    found = read_ps_json(desk)

    assert [(run["id"], run["group"], run["pinned"], run["name"], run["archived"]) for run in found["runs"]] == [
        (there, "g3", False, "", False),
        (here, "g2", True, "", False),
    ]
    assert [(group["id"], group["name"], group["kind"], group["pinned"]) for group in found["groups"]] == [
        ("g2", desk.repo.name, "repo", True),
        ("g3", "lib", "repo", False),
        ("g1", "default", "default", False),
    ]
    assert json.loads(desk.invoke("group", "list", "--json").stdout)["groups"][0]["runs"] == 1


def test_a_run_stays_where_it_was_moved_to(desk: Desk) -> None:
    run = finish_run(desk)

    said = desk.invoke("group", "move", run[:6], "default")

    assert said.stderr == f"run {run} is now in group 'default' (g1)\n"
    assert [one["group"] for one in read_ps_json(desk)["runs"]] == ["g1"]
    assert [one["group"] for one in read_ps_json(desk)["runs"]] == ["g1"]


def test_deleting_a_group_moves_its_runs_to_the_default_one(desk: Desk) -> None:
    run = finish_run(desk, repo="lib")

    said = desk.invoke("group", "delete", "lib")

    assert (said.exit_code, said.stderr) == (
        0,
        "group 'lib' (g2) was deleted; 1 run was moved to the default group\n",
    )
    assert [(one["id"], one["group"]) for one in read_ps_json(desk)["runs"]] == [(run, "g1")]


def test_deleting_a_team_ends_its_runs_and_no_list_has_them_again(
    desk: Desk, make_interrupted_run: Callable[[], str]
) -> None:
    other = make_interrupted_run()
    write_team(desk, SLOW)
    with desk.start_podium("run", "squad", "do it") as running, desk.start_podium("run", "squad", "again") as killed:
        wait_for(running.stderr, "one: calling")
        wait_for(killed.stderr, "one: calling")
        killed.send_signal(signal.SIGKILL)
        killed.wait()

        said = desk.run_podium("group", "delete", "squad", "--yes")
        _, told = read_until_exit(running)

    assert said.returncode == 0, said.stderr
    assert said.stderr.endswith("group 'squad' (g3) was deleted; 2 runs were removed from all lists\n")
    assert "cancelled" in told
    assert [one["id"] for one in read_ps_json(desk, "--all")["runs"]] == [other]
    gone = [run.id for run in desk.runs() if run.id != other]
    assert [desk.kinds(run)[-1] for run in gone] == ["run_ended", "run_ended"]
    assert desk.invoke("show", gone[0]).exit_code == 0
    pinned = desk.invoke("group", "pin", gone[0])
    assert (pinned.exit_code, f"podium show {gone[0]}" in pinned.stderr) == (2, True)


def test_a_teams_group_is_not_deleted_without_a_terminal_or_yes(desk: Desk) -> None:
    write_team(desk, "the part")
    run = finish_run(desk, agent="squad")

    said = desk.invoke("group", "delete", "squad")

    assert said.exit_code == 2
    assert "removes 1 run from all lists; there is no terminal to ask for confirmation, so use --yes" in said.stderr
    assert [one["id"] for one in read_ps_json(desk)["runs"]] == [run]


@pytest.mark.parametrize(("key", "code", "left"), [("n", 1, 1), ("y", 0, 0)])
def test_the_person_is_asked_before_a_team_is_deleted(desk: Desk, key: str, code: int, left: int) -> None:
    write_team(desk, "the part")
    finish_run(desk, agent="squad")
    mine, theirs = pty.openpty()
    with os.fdopen(mine, "wb", buffering=0) as terminal:
        terminal.write(f"{key}\n".encode())

        said = subprocess.run(
            [PODIUM, "group", "delete", "squad"],
            cwd=desk.repo,
            env=desk.environment,
            stdin=theirs,
            capture_output=True,
            encoding="utf-8",
            timeout=TOO_LONG,
        )
        os.close(theirs)

    assert said.returncode == code
    assert "Delete group 'squad' (g2) with 1 run? This cannot be undone. [y/N]: " in said.stderr
    assert len(read_ps_json(desk)["runs"]) == left


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("pin", "lbi"), "group or run 'lbi' not found; did you mean 'lib'? run podium group list to see the groups"),
        (("pin", "zzz"), "group or run 'zzz' not found; run podium group list to see the groups"),
        (("delete", "default"), "the group 'default' cannot be deleted"),
        (("move", "zzz", "lib"), "run 'zzz' not found"),
        (("rename", "lib", ""), "the name is empty; give one with visible characters"),
        (("rename", "lib", "\x1b[31mred"), "contains unprintable characters"),
        (("rename", "lib", "x" * 100_000), "the name can have at most 80 characters, got 100,000"),
        (("rename", "lib", "default"), "is already named 'default'"),
        (("rename", "lib", "g9"), "looks like a group id"),
        (("order",), "name the groups or runs that should come first"),
    ],
)
def test_an_invalid_change_is_refused_in_one_sentence(desk: Desk, arguments: tuple[str, ...], sentence: str) -> None:
    finish_run(desk, repo="lib")
    before = read_ps_json(desk)["groups"]

    said = desk.invoke("group", *arguments)

    assert said.exit_code == 2
    assert sentence in said.stderr
    assert len(said.stderr.splitlines()) == 1
    assert len(said.stderr) < 300
    assert "\x1b" not in said.stderr
    assert read_ps_json(desk)["groups"] == before


def test_where_one_name_is_wrong_nothing_is_done(desk: Desk) -> None:
    finish_run(desk, repo="lib")

    said = desk.invoke("group", "pin", "lib", "zzz")

    assert said.exit_code == 2
    assert not any(group["pinned"] for group in read_ps_json(desk)["groups"])


def test_a_folder_with_a_hostile_name_is_shown_and_does_not_act(desk: Desk) -> None:
    finish_run(desk)
    finish_run(desk, repo="a\x1b[31m\nb")

    shown = desk.invoke("ps").stdout + desk.invoke("group", "list").stdout

    assert "\x1b" not in shown
    assert "a\\x1b[31m" in shown
    assert desk.invoke("group", "rename", "g3", "tame").exit_code == 0


def test_without_any_runs_there_is_nothing_to_arrange(desk: Desk) -> None:
    assert "podium run AGENT" in desk.invoke("group").stderr
    assert json.loads(desk.invoke("group", "list", "--json").stdout)["groups"] == []
    assert desk.invoke("group", "pin", "x").exit_code == 2
    assert not Path(desk.store).exists()
