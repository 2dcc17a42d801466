"""The inbox on the command line: pending requests, and answers that count only once."""

from __future__ import annotations

import getpass
import json
import subprocess
import sys
from pathlib import Path

import pytest

from podium.store.mailbox import post_to_mailbox
from podium.testing import read_entries
from podium.values.event import Event, PermissionAnswered, PermissionAsked

from .conftest import Desk
from .test_terminal import Terminal

WRITE = {"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "new\n"}}]}
CHECK = {"calls": [{"name": "bash", "arguments": {"command": "cargo check -q"}}]}


@pytest.fixture
def parked_desk(desk: Desk) -> Desk:
    """Make a run that is parked until somebody answers."""
    desk.write_agent("writer", WRITE, "The end.", tools=["Write", "Bash"])
    done = desk.run_podium("run", "writer", "go", "--park")
    assert "paused" in done.stderr
    return desk


def list_waiting_requests(desk: Desk) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(desk.run_podium("approvals", "--json").stdout)["waiting"]
    return found


def read_events(desk: Desk) -> list[Event]:
    return [entry.event for entry in read_entries(desk.store, desk.run_id())]


def test_a_request_of_an_unattended_run_waits_in_the_inbox(parked_desk: Desk) -> None:
    [one] = list_waiting_requests(parked_desk)
    listed = parked_desk.run_podium("approvals").stdout
    shown = parked_desk.run_podium("approvals", str(one["id"])).stdout

    assert not (parked_desk.repo / "a.txt").exists()
    assert one["state"] == "paused"
    assert "writer" in listed
    assert "write_file a.txt" in listed
    assert "+new" in shown


def test_the_inbox_shows_what_is_risky_about_a_request_and_why_the_agent_makes_it(desk: Desk) -> None:
    removal = {"calls": [{"name": "bash", "arguments": {"command": "rm -rf build /srv/x"}}]}
    desk.write_agent("writer", removal | {"says": "Both are old."}, "The end.", tools=["Bash"])
    desk.invoke("run", "writer", "go", "--park")

    [one] = json.loads(desk.invoke("approvals", "--json").stdout)["waiting"]
    listed, shown = desk.invoke("approvals").stdout, desk.invoke("approvals", one["id"]).stdout
    logged, run = desk.invoke("logs", desk.run_id()).stdout, desk.invoke("show", desk.run_id()).stdout

    assert one["asked"]["risks"] == [
        {"kind": "deletes", "examples": ["build", "/srv/x"]},
        {"kind": "outside", "examples": ["/srv/x"]},
    ]
    assert "rm -rf build /srv/x  [deletes, outside]" in listed
    for text in (one["text"], shown):
        assert "  risk: deletes or discards: build, /srv/x\n  risk: reaches outside the checkout: /srv/x" in text
        assert "  Why (agent's words):\n  | Both are old.\n" in text
    assert one["asked"]["agent_reason"] == "Both are old."
    for text in (logged, run):
        assert 'agent\'s words: "Both are old."' in text
        assert "deletes or discards: build, /srv/x; reaches outside the checkout: /srv/x" in text


def test_an_approved_request_is_carried_out_when_the_run_goes_on(parked_desk: Desk) -> None:
    [one] = list_waiting_requests(parked_desk)

    approved = parked_desk.run_podium("approve", str(one["id"])[:6])
    resumed = parked_desk.run_podium("resume", parked_desk.run_id())

    assert approved.returncode == 0
    assert f"podium resume {parked_desk.run_id()}" in approved.stderr
    assert resumed.stdout == "The end.\n"
    assert (parked_desk.repo / "a.txt").read_text() == "new\n"
    assert list_waiting_requests(parked_desk) == []


def test_a_refusal_reaches_the_agent_with_its_reason(parked_desk: Desk) -> None:
    [one] = list_waiting_requests(parked_desk)

    parked_desk.run_podium("deny", str(one["id"]), "--why", "not today")
    parked_desk.run_podium("resume", parked_desk.run_id())

    assert not (parked_desk.repo / "a.txt").exists()
    assert "not today" in parked_desk.run_podium("logs", parked_desk.run_id()).stdout


def test_resuming_without_an_answer_lets_it_wait_again(parked_desk: Desk) -> None:
    [before] = list_waiting_requests(parked_desk)

    parked_desk.run_podium("resume", parked_desk.run_id(), "--park")

    assert [one["id"] for one in list_waiting_requests(parked_desk)] == [before["id"]]


def test_a_second_answer_is_refused_with_the_first_decision(parked_desk: Desk) -> None:
    [one] = list_waiting_requests(parked_desk)
    post_to_mailbox(
        parked_desk.store,
        parked_desk.run_id(),
        PermissionAnswered(id=str(one["id"]), decision="deny", by="ada", channel="page"),
        ref=str(one["id"]),
    )

    late = parked_desk.run_podium("approve", str(one["id"])[:6])
    parked_desk.run_podium("resume", parked_desk.run_id())
    later = parked_desk.run_podium("deny", str(one["id"]))

    for told in (late, later):
        assert told.returncode == 6
        assert f"{one['id']} was already answered: deny by ada (page)" in told.stderr


def test_an_answer_that_comes_too_late_says_what_happened(desk: Desk) -> None:
    desk.write_agent("writer", WRITE, "The end.", tools=["Write"])
    done = desk.invoke("run", "writer", "go")
    [asked] = [event.id for event in read_events(desk) if isinstance(event, PermissionAsked)]

    late = desk.invoke("approve", asked[:6])

    assert done.stdout == "The end.\n"
    assert late.exit_code == 6
    assert f"podium: {asked} was closed at " in late.stderr
    assert "write_file was denied" in late.stderr


def test_a_request_that_is_always_allowed_becomes_a_rule(desk: Desk) -> None:
    desk.write_agent("checker", CHECK, "The end.", tools=["Bash"])
    desk.run_podium("run", "checker", "go", "--park")
    [one] = list_waiting_requests(desk)

    approved = desk.run_podium("approve", str(one["id"]), "--always")
    desk.run_podium("resume", desk.run_id())
    again = desk.run_podium("run", "checker", "go")

    assert "is now always allowed" in approved.stderr
    assert again.returncode == 0
    assert "asks for permission" not in again.stderr


def test_an_always_answer_holds_in_the_repository_of_the_run_and_not_in_another(desk: Desk, tmp_path: Path) -> None:
    desk.write_agent("checker", CHECK, "The end.", tools=["Bash"])
    desk.run_podium("run", "checker", "go", "--park")
    [one] = list_waiting_requests(desk)
    other = tmp_path / "other"
    (other / ".podium").mkdir(parents=True)

    desk.run_podium("approve", str(one["id"]), "--always")

    assert desk.run_podium("policy", "check", "--", "cargo check").returncode == 0
    assert desk.run_podium("policy", "check", "--repo", str(other), "--", "cargo check").returncode == 3
    [saved] = json.loads(desk.run_podium("policy", "list", "--json").stdout)["rules"]
    assert (saved["rule"], saved["repo"]) == ("Bash(cargo check *)", str(desk.repo.resolve()))


def test_an_always_answer_can_hold_everywhere(desk: Desk, tmp_path: Path) -> None:
    desk.write_agent("checker", CHECK, "The end.", tools=["Bash"])
    desk.run_podium("run", "checker", "go", "--park")
    [one] = list_waiting_requests(desk)
    other = tmp_path / "other"
    (other / ".podium").mkdir(parents=True)

    refused = desk.run_podium("approve", str(one["id"]), "--everywhere")
    approved = desk.run_podium("approve", str(one["id"]), "--always", "--everywhere")

    assert "--everywhere needs --always; give both" in refused.stderr
    assert "is now always allowed everywhere" in approved.stderr
    assert desk.run_podium("policy", "check", "--repo", str(other), "--", "cargo check").returncode == 0


def test_a_question_is_answered_from_the_command_line(desk: Desk) -> None:
    ask = {"calls": [{"name": "ask_person", "arguments": {"question": "Which?", "choices": ["red", "blue"]}}]}
    desk.write_agent("asker", ask, "The end.", tools=["ask_person"])
    desk.run_podium("run", "asker", "go", "--park")
    [one] = list_waiting_requests(desk)
    listed, shown = desk.run_podium("approvals"), desk.run_podium("approvals", str(one["id"]))
    terminal = Terminal(desk, "approvals", columns=200)
    terminal.wait_for(f"podium answer {one['id']} TEXT")
    assert terminal.wait_exit() == 0

    wrong = desk.run_podium("answer", str(one["id"]), "7")
    desk.run_podium("answer", str(one["id"]), "2")
    resumed = desk.run_podium("resume", desk.run_id())

    assert wrong.returncode == 2
    assert str(one["id"]) in wrong.stderr
    assert "1 (red), 2 (blue), or type your own answer" in wrong.stderr
    assert resumed.stdout == "The end.\n"
    logged, run = desk.invoke("logs", desk.run_id()).stdout, desk.invoke("show", desk.run_id()).stdout
    for text in (logged, run):
        assert f'question {one["id"]}: answered by {getpass.getuser()} (command): "blue"' in text
    [shown_request] = json.loads(desk.invoke("show", desk.run_id(), "--json").stdout)["requests"]
    assert shown_request["asked"]["text"] == "Which?"
    assert shown_request["answered"]["channel"] == "command"
    assert listed.stderr == ""  # the output may be piped to another command
    assert shown.stdout.splitlines()[-1] == "  2. blue"
    assert shown.stderr == f"answer it with: podium answer {one['id']} TEXT\n"


def test_audit_shows_every_action_with_its_approval(parked_desk: Desk) -> None:
    [one] = list_waiting_requests(parked_desk)
    parked_desk.run_podium("approve", str(one["id"]))
    parked_desk.run_podium("resume", parked_desk.run_id())

    listed = parked_desk.run_podium("audit", parked_desk.run_id()).stdout
    [act] = json.loads(parked_desk.run_podium("audit", parked_desk.run_id(), "--json").stdout)["actions"]

    assert "allowed  writer: write_file" in listed
    assert "done" in listed
    assert f"({getpass.getuser()}) via command -> done" in listed
    assert act["requests"] == [one["id"]]
    assert act["channel"] == "command"
    assert act["answers"][0]["decision"] == "once"
    assert (act["answers"][0]["by"], act["answers"][0]["channel"]) == (getpass.getuser(), "command")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("approve", "zzz"), "no open request matches 'zzz'"),
        (("approve", "zzz", "--run", "--always"), "--run and --always cannot be combined"),
        (("deny", "zzz", "--pause", "--stop"), "--pause and --stop cannot be combined"),
        (("answer", "zzz", "x"), "no open request matches 'zzz'"),
    ],
)
def test_bad_input_gets_one_sentence(parked_desk: Desk, arguments: tuple[str, ...], words: str) -> None:
    done = parked_desk.run_podium(*arguments)

    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


ANSWER_ALL = """
import random, sys
from pathlib import Path
from podium.store.reader import StoreReader
from podium.values.event import Event, PermissionAnswered, PermissionAsked
from podium.store.mailbox import post_to_mailbox

store, run, by = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
ids = [f"{n:04d}" for n in range(1000)]
random.Random(by).shuffle(ids)
print("ready", flush=True)
sys.stdin.readline()
print(sum(post_to_mailbox(store, run, PermissionAnswered(id=id, decision="once", by=by), ref=id) for id in ids))
"""


@pytest.mark.slow
def test_two_processes_that_answer_a_thousand_requests_at_once_give_one_decision_each(parked_desk: Desk) -> None:
    run = parked_desk.run_id()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", ANSWER_ALL, str(parked_desk.store), run, by],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        for by in ("ada", "bob")
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    wins = [int(process.communicate(timeout=60)[0]) for process in processes]

    assert sum(wins) == 1000
    assert all(wins), "both were at it at the same time"


def test_a_store_without_runs_has_nothing_that_waits(desk: Desk) -> None:
    done = desk.run_podium("approvals")

    assert (done.returncode, done.stderr) == (0, "no open requests\n")
    assert not Path(desk.store).exists()
