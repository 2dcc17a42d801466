"""The inbox from the command line: requests that wait, and answers that count once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from podium.store.sqlite.mailbox import post_to_mailbox
from podium.values.event import PermissionAnswered

from .conftest import Desk

WRITE = {"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "new\n"}}]}
TEST = {"calls": [{"name": "bash", "arguments": {"command": "ls -la"}}]}


@pytest.fixture
def parked(desk: Desk) -> Desk:
    """A run that rests until somebody answers."""
    desk.agent("writer", WRITE, "The end.", tools=["Write", "Bash"])
    done = desk.podium("run", "writer", "go", "--park")
    assert "paused" in done.stderr
    return desk


def waiting(desk: Desk) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(desk.podium("approvals", "--json").stdout)["waiting"]
    return found


def test_what_nobody_is_there_to_answer_waits_in_the_inbox(parked: Desk) -> None:
    [one] = waiting(parked)
    listed = parked.podium("approvals").stdout
    shown = parked.podium("approvals", str(one["id"])).stdout

    assert not (parked.repo / "a.txt").exists()
    assert one["state"] == "paused"
    assert "writer" in listed
    assert "write_file a.txt" in listed
    assert "+new" in shown


def test_an_approved_request_is_carried_out_when_the_run_goes_on(parked: Desk) -> None:
    [one] = waiting(parked)

    approved = parked.podium("approve", str(one["id"])[:6])
    resumed = parked.podium("resume", parked.run_id())

    assert approved.returncode == 0
    assert f"podium resume {parked.run_id()}" in approved.stderr
    assert resumed.stdout == "The end.\n"
    assert (parked.repo / "a.txt").read_text() == "new\n"
    assert waiting(parked) == []


def test_a_refused_request_is_told_to_the_agent(parked: Desk) -> None:
    [one] = waiting(parked)

    parked.podium("deny", str(one["id"]), "--why", "not today")
    parked.podium("resume", parked.run_id())

    assert not (parked.repo / "a.txt").exists()
    assert "not today" in parked.podium("logs", parked.run_id()).stdout


def test_resuming_without_an_answer_lets_it_wait_again(parked: Desk) -> None:
    [before] = waiting(parked)

    parked.podium("resume", parked.run_id(), "--park")

    assert [one["id"] for one in waiting(parked)] == [before["id"]]


def test_the_second_answer_is_told_who_decided(parked: Desk) -> None:
    [one] = waiting(parked)
    post_to_mailbox(
        parked.store,
        parked.run_id(),
        PermissionAnswered(id=str(one["id"]), decision="deny", by="ada"),
        ref=str(one["id"]),
    )

    late = parked.podium("approve", str(one["id"])[:6])
    parked.podium("resume", parked.run_id())
    later = parked.podium("deny", str(one["id"]))

    for told in (late, later):
        assert told.returncode == 6
        assert f"{one['id']} was decided before: deny by ada" in told.stderr


def test_what_is_allowed_for_good_is_a_rule_from_then_on(desk: Desk) -> None:
    desk.agent("lister", TEST, "The end.", tools=["Bash"])
    desk.podium("run", "lister", "go", "--park")
    [one] = waiting(desk)

    approved = desk.podium("approve", str(one["id"]), "--always")
    desk.podium("resume", desk.run_id())
    again = desk.podium("run", "lister", "go")

    assert "is allowed" in approved.stderr
    assert again.returncode == 0
    assert "asks for permission" not in again.stderr


def test_a_question_is_answered_from_the_command_line(desk: Desk) -> None:
    ask = {"calls": [{"name": "ask_person", "arguments": {"question": "Which?", "choices": ["red", "blue"]}}]}
    desk.agent("asker", ask, "The end.", tools=["ask_person"])
    desk.podium("run", "asker", "go", "--park")
    [one] = waiting(desk)
    listed, shown = desk.podium("approvals"), desk.podium("approvals", str(one["id"]))

    wrong = desk.podium("answer", str(one["id"]), "7")
    desk.podium("answer", str(one["id"]), "2")
    resumed = desk.podium("resume", desk.run_id())

    assert wrong.returncode == 2
    assert "has no choice 7; there are 1 (red), 2 (blue), and words are taken as they are" in wrong.stderr
    assert resumed.stdout == "The end.\n"
    assert '"blue"' in desk.podium("logs", desk.run_id()).stdout
    assert listed.stderr.endswith(f"podium answer {one['id']} TEXT\n")
    assert shown.stdout.splitlines()[-1] == "  2. blue"
    assert shown.stderr == f"answer it with: podium answer {one['id']} TEXT\n"


def test_who_approved_what_can_be_looked_up(parked: Desk) -> None:
    [one] = waiting(parked)
    parked.podium("approve", str(one["id"]))
    parked.podium("resume", parked.run_id())

    listed = parked.podium("audit", parked.run_id()).stdout
    [act] = json.loads(parked.podium("audit", parked.run_id(), "--json").stdout)["actions"]

    assert "allowed  writer: write_file" in listed
    assert "done" in listed
    assert act["requests"] == [one["id"]]
    assert act["answers"][0]["decision"] == "once"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("approve", "zzz"), "nothing called 'zzz' waits for you"),
        (("approve", "zzz", "--run", "--always"), "--run and --always exclude each other"),
        (("deny", "zzz", "--pause", "--stop"), "either paused or stopped"),
        (("answer", "zzz", "x"), "nothing called 'zzz' waits for you"),
    ],
)
def test_bad_input_gets_one_sentence(parked: Desk, arguments: tuple[str, ...], words: str) -> None:
    done = parked.podium(*arguments)

    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


COMMANDER = """
import random, sys
from pathlib import Path
from podium.values.event import PermissionAnswered
from podium.store.sqlite.mailbox import post_to_mailbox

store, run, by = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
ids = [f"{n:04d}" for n in range(1000)]
random.Random(by).shuffle(ids)
print(sum(post_to_mailbox(store, run, PermissionAnswered(id=id, decision="once", by=by), ref=id) for id in ids))
"""


def test_two_commanders_who_answer_a_thousand_requests_at_once_give_one_decision_each(parked: Desk) -> None:
    run = parked.run_id()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", COMMANDER, str(parked.store), run, by], stdout=subprocess.PIPE, encoding="utf-8"
        )
        for by in ("ada", "bob")
    ]

    wins = [int(process.communicate(timeout=60)[0]) for process in processes]

    assert sum(wins) == 1000
    assert all(wins), "both were at it at the same time"


def test_a_store_without_runs_has_nothing_that_waits(desk: Desk) -> None:
    done = desk.podium("approvals")

    assert (done.returncode, done.stderr) == (0, "nothing waits for you\n")
    assert not Path(desk.store).exists()
