"""Plans on the command line: looked at, edited and approved from any terminal, and what the steps produced."""

from __future__ import annotations

import getpass
import json
from pathlib import Path

import pytest

from ..collaboration import make_plan, make_step
from .conftest import Desk

MEMBER = "ACCEPT\n1: MET"
TWO_STEPS = make_plan(make_step("s1", "ada"), make_step("s2", "bob", "s1"))


def write_team(desk: Desk, **options: object) -> None:
    desk.write_agent("lead", TWO_STEPS, team={"mode": "collaborate", "members": ["ada", "bob"], **options})
    desk.write_agent("ada", MEMBER)
    desk.write_agent("bob", MEMBER)


@pytest.fixture
def finished_desk(desk: Desk) -> Desk:
    """Make a run of a team that has finished its work."""
    write_team(desk)
    assert desk.invoke("run", "lead", "ship it").exit_code == 0
    return desk


@pytest.fixture
def waiting_desk(desk: Desk) -> Desk:
    """Make a run whose plan waits for a person, and that no process works on."""
    write_team(desk, approve_plan="person")
    assert desk.invoke("run", "lead", "ship it", "--park").exit_code == 3
    return desk


def edit_with(tmp_path: Path, *commands: str) -> str:
    """Return an editor that changes the file with these sed commands."""
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i " + " ".join(f"-e '{one}'" for one in commands) + ' "$1"\n')
    editor.chmod(0o755)
    return str(editor)


def test_a_finished_plan_shows_each_step_with_its_owner_and_criteria(finished_desk: Desk) -> None:
    shown = finished_desk.invoke("plan", finished_desk.run_id()).stdout.splitlines()

    assert shown[0] == "lead: completed; ship it"
    assert [line.split() for line in shown[1:]] == [
        ["done", "s1", "ada", "do", "s1", "1/1", "met"],
        ["done", "s2", "bob", "do", "s2", "1/1", "met"],
    ]


def test_the_plan_as_json_has_states_findings_and_snapshots(finished_desk: Desk) -> None:
    [team] = json.loads(finished_desk.invoke("plan", finished_desk.run_id(), "--json").stdout)["teams"]

    assert team["state"] == "completed"
    assert [(step["id"], step["state"], step["owner"]) for step in team["steps"]] == [
        ("s1", "done", "ada"),
        ("s2", "done", "bob"),
    ]
    assert team["steps"][0]["findings"][0]["by"] == "bob"


def test_a_run_without_a_team_that_plans_has_no_plan(desk: Desk) -> None:
    desk.write_agent("a", "x")
    desk.invoke("run", "a", "go")

    said = desk.invoke("plan", desk.run_id())

    assert said.exit_code == 2
    assert "has no plan; only teams in collaborate mode make plans" in said.stderr


def test_a_waiting_plan_is_shown_in_full_and_approved_from_another_terminal(waiting_desk: Desk) -> None:
    run = waiting_desk.run_id()
    [one] = json.loads(waiting_desk.invoke("approvals", "--json").stdout)["waiting"]
    shown = waiting_desk.invoke("approvals", one["id"]).stdout

    answered = waiting_desk.invoke("answer", one["id"], "approve")
    resumed = waiting_desk.invoke("resume", run)

    assert "│ s1. ada" in shown
    assert "│     - it works" in shown
    assert (answered.exit_code, resumed.exit_code) == (0, 0)
    assert waiting_desk.invoke("plan", run).stdout.startswith("lead: completed")


def test_a_plan_is_edited_approved_and_carried_out_as_edited(waiting_desk: Desk, tmp_path: Path) -> None:
    run = waiting_desk.run_id()
    editor = edit_with(tmp_path, "s/description: do s2/description: do it with care/")

    edited = waiting_desk.invoke("plan", run, "--edit", EDITOR=editor)
    resumed = waiting_desk.invoke("resume", run)

    assert (edited.exit_code, resumed.exit_code) == (0, 0), edited.stderr
    assert "do it with care" in waiting_desk.invoke("plan", run).stdout
    committed = waiting_desk.invoke("logs", run, "--kind", "plan_committed", "--jsonl").stdout
    assert json.loads(committed)["event"]["is_approved_by_person"] is True
    answered = waiting_desk.invoke("logs", run, "--kind", "question_answered", "--jsonl").stdout
    assert json.loads(answered)["event"]["channel"] == "command"


def test_an_invalid_edit_is_refused_with_its_line_and_nothing_is_lost(waiting_desk: Desk, tmp_path: Path) -> None:
    run = waiting_desk.run_id()
    editor = edit_with(tmp_path, "s/owner: bob/owner: zoe/")

    edited = waiting_desk.invoke("plan", run, "--edit", EDITOR=editor)

    assert edited.exit_code == 2
    assert "line 10 of the plan: step 's2' is owned by 'zoe'" in edited.stderr
    kept = waiting_desk.home / f"plan-{run}.yaml"
    assert "owner: zoe" in kept.read_text()
    assert len(json.loads(waiting_desk.invoke("approvals", "--json").stdout)["waiting"]) == 1


def test_a_plan_that_was_not_changed_keeps_waiting(waiting_desk: Desk, tmp_path: Path) -> None:
    said = waiting_desk.invoke("plan", waiting_desk.run_id(), "--edit", EDITOR=edit_with(tmp_path, "s/x/x/"))

    assert said.exit_code == 0
    assert "still needs your approval" in said.stderr


def test_a_plan_that_a_person_sends_back_is_drafted_again(waiting_desk: Desk) -> None:
    run = waiting_desk.run_id()
    [one] = json.loads(waiting_desk.invoke("approvals", "--json").stdout)["waiting"]

    waiting_desk.invoke("answer", one["id"], "add tests")
    waiting_desk.invoke("resume", run)

    # The script of the lead has one step, so its second draft fails the run: the comment reached the planner.
    assert "the script of lead has no more steps" in waiting_desk.invoke("logs", run).stdout


def test_artifacts_are_listed_and_printed_by_name(finished_desk: Desk) -> None:
    run = finished_desk.run_id()

    listed = finished_desk.invoke("artifacts", run).stdout
    printed = finished_desk.invoke("artifacts", run, "s1-1.md").stdout
    unknown = finished_desk.invoke("artifacts", run, "s9.md")

    assert [line.split()[:4] for line in listed.splitlines()] == [
        ["document", "s1-1.md", "s1", "ada"],
        ["document", "s2-1.md", "s2", "bob"],
    ]
    assert printed == MEMBER
    assert (unknown.exit_code, "artifacts: s1-1.md, s2-1.md" in unknown.stderr) == (2, True)


def test_a_log_is_limited_to_an_agent_a_step_a_kind_and_a_time(finished_desk: Desk) -> None:
    run = finished_desk.run_id()

    of_step = finished_desk.invoke("logs", run, "--step", "s1", "--kind", "turn_ended", "--jsonl").stdout.splitlines()
    of_agent = finished_desk.invoke(
        "logs", run, "--agent", "ada", "--kind", "turn_ended", "--jsonl"
    ).stdout.splitlines()
    early = finished_desk.invoke("logs", run, "--since", "2h").stdout
    late = finished_desk.invoke("logs", run, "--since", "2999-01-01").stdout

    assert [json.loads(line)["operation"] for line in of_step] == [
        "lead/plan_step:s1/member:ada#1",
        "lead/plan_step:s1/review#1/member:bob#1",
    ]
    assert len(of_agent) == 3  # it reviewed the plan, did its step and reviewed the other one
    assert (early != "", late) == (True, "")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--since", "soon"], "--since 'soon' is not a time; use 10m, 2h, 3d, 14:30 or 2026-05-01T14:30"),
        (["--kind", "turn_end"], "unknown kind 'turn_end' in --kind; similar kinds: turn_ended"),
    ],
)
def test_a_wrong_selection_of_a_log_is_refused_with_what_would_work(
    finished_desk: Desk, arguments: list[str], sentence: str
) -> None:
    said = finished_desk.invoke("logs", finished_desk.run_id(), *arguments)

    assert said.exit_code == 2
    assert sentence in said.stderr


def test_a_person_reviews_a_step_from_another_process_while_no_process_works_on_the_run(desk: Desk) -> None:
    write_team(desk)
    team = {"mode": "collaborate", "members": ["ada", "bob"], "review_by": "person"}
    desk.write_agent("lead", make_plan(make_step("s1", "ada")), team=team)
    desk.write_agent("ada", "ACCEPT", "now there is a test")

    parked = desk.run_podium("run", "lead", "ship it", "--park")
    run = desk.run_id()
    [first] = json.loads(desk.run_podium("approvals", "--json").stdout)["waiting"]
    shown = desk.run_podium("approvals", first["id"]).stdout
    rejected = desk.run_podium("answer", first["id"], "there is no test")
    reopened = desk.run_podium("resume", run, "--park")
    [second] = json.loads(desk.run_podium("approvals", "--json").stdout)["waiting"]
    accepted = desk.run_podium("answer", second["id"], "met")
    resumed = desk.run_podium("resume", run)

    assert (parked.returncode, reopened.returncode, resumed.returncode) == (3, 3, 0), resumed.stderr
    assert (rejected.returncode, accepted.returncode) == (0, 0)
    assert "Is ada's step s1 done?" in shown
    assert "│ 1. it works" in shown
    reviews = [json.loads(line)["event"] for line in read_log(desk, run, "plan_step_reviewed")]
    assert [(one["passed"], one["findings"][0].get("reason", "")) for one in reviews] == [
        (False, "there is no test"),
        (True, ""),
    ]
    assert {one["reviewer"] for one in reviews} == {getpass.getuser()}
    [reopening] = read_log(desk, run, "plan_step_reopened")
    assert "there is no test" in reopening
    assert "attempt 2; 1/1 met" in desk.invoke("plan", run).stdout


def read_log(desk: Desk, run: str, kind: str) -> list[str]:
    return desk.invoke("logs", run, "--kind", kind, "--jsonl").stdout.splitlines()
