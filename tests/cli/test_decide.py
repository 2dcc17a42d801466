"""`podium decide`: a decision outside any other run, by a person or by a team."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podium.store.fault_injection import EXIT_CODE
from podium.store.reader import StoreReader
from podium.testing import read_events
from podium.values.event import DecisionCommitted, DecisionProposed, QuestionAsked, RunEnded, VoteClosed

from .conftest import Desk
from .test_terminal import Terminal

DRINK = ("decide", "Which drink?", "--option", "tea", "--option", "coffee")


def add_council(desk: Desk, *options: str, lead: str = "coffee", **keys: object) -> None:
    """Write a team with these keys whose members vote for these options, and whose lead decides for another one."""
    names = [f"elder-{place}" for place, _ in enumerate(options, 1)]
    for name, option in zip(names, options, strict=True):
        call = {"name": "cast_ballot", "arguments": {"option": option, "reason": f"{name} likes it"}}
        desk.write_agent(name, {"calls": [call]}, "KEEP")
    call = {"name": "decide", "arguments": {"option": lead, "reason": "I lead."}}
    desk.write_agent("council", {"calls": [call]}, team={"mode": "broadcast", "members": names, **keys})


def test_a_team_votes_and_the_option_is_the_output(desk: Desk) -> None:
    add_council(desk, "tea", "tea", "coffee")

    said = desk.invoke(*DRINK, "--by", "council", "--evidence", "-", "--window", "20", input="Coffee costs 3.")

    assert (said.exit_code, said.stdout) == (0, "tea\n")
    assert "elder-1 votes for tea" in said.stderr
    [proposed] = read_events(desk.store, desk.run_id(), DecisionProposed)
    assert isinstance(proposed, DecisionProposed)
    assert (proposed.evidence, proposed.by, proposed.window) == ("Coffee costs 3.", "person", 20.0)
    assert (proposed.repo, proposed.eligible) == (str(desk.repo.resolve()), ("elder-1", "elder-2", "elder-3"))
    assert "tea (majority)" in desk.invoke("decisions", "--in-force").stdout
    assert "council" in desk.invoke("ps", "--all").stdout


def test_the_lead_of_the_team_breaks_a_tie(desk: Desk) -> None:
    add_council(desk, "tea", "coffee")

    said = desk.invoke(*DRINK, "--by", "council", "--json")

    data = json.loads(said.stdout)["data"]
    assert (data["option"], data["how"]) == ("coffee", "decided by lead (tie)")


def test_weights_of_members_count_in_a_weighted_vote(desk: Desk) -> None:
    add_council(desk, "tea", "coffee", "coffee")
    members = [{"agent": "elder-1", "weight": 3}, "elder-2", "elder-3"]
    desk.write_agent("council", "hm", team={"mode": "broadcast", "members": members})

    assert desk.invoke(*DRINK, "--by", "council", "--rule", "weighted").stdout == "tea\n"


def read_terms(desk: Desk) -> tuple[str, float, str]:
    """Return the rule, the window and the last resort of the proposal."""
    [proposed] = read_events(desk.store, desk.run_id(), DecisionProposed)
    assert isinstance(proposed, DecisionProposed)
    return proposed.rule, proposed.window, proposed.decide_by


def test_a_team_votes_by_its_own_terms(desk: Desk) -> None:
    add_council(desk, "tea", "tea", "coffee", vote="quorum:3", vote_window=30, decide_by="person")

    assert desk.invoke(*DRINK, "--by", "council").stdout == "tea\n"

    assert read_terms(desk) == ("quorum:3", 30.0, "person")
    assert "tea (quorum:3)" in desk.invoke("decisions").stdout


def test_options_override_the_terms_of_the_team(desk: Desk) -> None:
    add_council(desk, "tea", "tea", "coffee", vote="unanimous", vote_window=30, decide_by="person")
    terms = ("--rule", "majority", "--window", "20", "--decide-by", "lead")

    assert desk.invoke(*DRINK, "--by", "council", *terms).stdout == "tea\n"

    assert read_terms(desk) == ("majority", 20.0, "lead")


def test_a_vote_without_a_result_waits_for_the_person_that_the_team_names(desk: Desk) -> None:
    add_council(desk, "tea", "coffee", decide_by="person")

    said = desk.invoke(*DRINK, "--by", "council")

    assert said.exit_code == 3
    [asked] = read_events(desk.store, desk.run_id(), QuestionAsked)
    assert isinstance(asked, QuestionAsked)
    assert desk.invoke("answer", asked.id, "tea").exit_code == 0
    assert desk.invoke("resume", desk.run_id()).stdout == "tea\n"
    [made] = read_events(desk.store, desk.run_id(), DecisionCommitted)
    assert isinstance(made, DecisionCommitted)
    assert made.how == "decided by person (tie)"


def test_without_a_terminal_the_decision_waits_in_the_inbox_until_a_person_answers(desk: Desk) -> None:
    said = desk.invoke(*DRINK, "--evidence", "Coffee costs 3.")

    assert said.exit_code == 3
    [asked] = read_events(desk.store, desk.run_id(), QuestionAsked)
    assert isinstance(asked, QuestionAsked)
    assert f"the decision needs your answer: podium answer {asked.id} OPTION" in said.stderr
    assert "rehearsal" not in said.stderr
    listed = desk.invoke("approvals").stdout
    assert asked.id in listed
    assert "Which drink?" in listed
    shown = desk.invoke("approvals", asked.id).stdout
    assert "> Coffee costs 3." in shown
    assert "2. coffee" in shown

    wrong = desk.invoke("answer", asked.id, "juice")
    answered = desk.invoke("answer", asked.id[:6], "Coffee")
    resumed = desk.invoke("resume", desk.run_id())

    assert (wrong.exit_code, answered.exit_code) == (2, 0)
    assert asked.id in wrong.stderr
    assert "1 (tea), 2 (coffee)" in wrong.stderr
    assert (resumed.exit_code, resumed.stdout) == (0, "coffee\n")
    [made] = read_events(desk.store, desk.run_id(), DecisionCommitted)
    assert isinstance(made, DecisionCommitted)
    assert made.how == "decided by person"


def test_a_decision_for_a_person_is_never_made_by_an_agent(desk: Desk) -> None:
    desk.invoke(*DRINK)

    resumed = desk.invoke("resume", desk.run_id(), "--no-input")

    assert resumed.exit_code == 3
    assert read_events(desk.store, desk.run_id(), DecisionCommitted) == []
    assert len(read_events(desk.store, desk.run_id(), QuestionAsked)) == 1


def test_a_person_at_the_terminal_is_asked_at_once(desk: Desk) -> None:
    terminal = Terminal(desk, *DRINK, "--evidence", "Coffee costs 3.", "--plain")
    lines = terminal.wait_for("Your answer:")
    assert any("> Coffee costs 3." in line for line in lines)
    terminal.process.sendline("juice")
    terminal.wait_for("'juice' is not one of the choices for")
    terminal.process.sendline("1")

    assert terminal.wait_exit() == 0
    [made] = read_events(desk.store, desk.run_id(), DecisionCommitted)
    assert isinstance(made, DecisionCommitted)
    assert (made.option, made.how) == ("tea", "decided by person")


def test_a_decision_supersedes_one_that_is_in_force(desk: Desk) -> None:
    add_council(desk, "tea")
    desk.invoke(*DRINK, "--by", "council")
    [first] = json.loads(desk.invoke("decisions", "--json").stdout)["decisions"]

    said = desk.invoke(*DRINK, "--by", "council", "--supersede", first["id"][:6])
    again = desk.invoke(*DRINK, "--by", "council", "--supersede", first["id"])

    assert said.exit_code == 0
    second, old = json.loads(desk.invoke("decisions", "--json").stdout)["decisions"]
    assert (old["id"], old["superseded_by"], second["supersedes"]) == (first["id"], second["id"], first["id"])
    assert again.exit_code == 2
    assert f"decision {first['id']} is superseded by {second['id']}; only a decision in force" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("decide", "Which?", "--option", "tea"), "a decision needs 2 to 20 options, got 1"),
        (("decide", " ", "--option", "tea", "--option", "coffee"), "the request is empty"),
        ((*DRINK, "--rule", "most"), "'most' is not a vote rule; use majority"),
        ((*DRINK, "--window", "0"), "the vote window must be more than 0 seconds, got 0"),
        ((*DRINK, "--by", "council", "--rule", "quorum:2"), "quorum:2 cannot be reached"),
        ((*DRINK, "--decide-by", "lead"), "--decide-by lead needs a team that votes; add --by TEAM"),
        ((*DRINK, "--by", "elder-1"), "elder-1 does not lead a team; use --by person or --by TEAM"),
        ((*DRINK, "--by", "nobody"), 'agent "nobody" not found'),
        ((*DRINK, "--supersede", "d1"), "decision 'd1' not found in "),
    ],
)
def test_a_decision_that_cannot_be_made_is_refused_before_anything_runs(
    desk: Desk, arguments: tuple[str, ...], said: str
) -> None:
    add_council(desk, "tea")

    result = desk.invoke(*arguments)

    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
    assert not desk.store.exists() or desk.runs() == []


def test_a_process_that_dies_between_vote_and_commit_commits_once(desk: Desk, tmp_path: Path) -> None:
    add_council(desk, "tea", "tea")
    desk.invoke(*DRINK, "--by", "council")
    with StoreReader(desk.store) as reader:
        entries = reader.read_entries(desk.run_id())
    closed = next(entry.seq for entry in entries if isinstance(entry.event, VoteClosed))
    home = {"PODIUM_HOME": str(tmp_path)}

    died = desk.run_podium(*DRINK, "--by", "council", "--quiet", PODIUM_FAULT=str(closed), **home)
    resumed = desk.run_podium("resume", "--quiet", **home)

    assert (died.returncode, resumed.stdout) == (EXIT_CODE, "tea\n")
    with StoreReader(tmp_path / "podium.db") as reader:
        [summary] = reader.list_runs()
        events = [entry.event for entry in reader.read_entries(summary.id)]
    assert len([one for one in events if isinstance(one, DecisionCommitted)]) == 1
    assert isinstance(events[-1], RunEnded)


# Squads


def add_squad(desk: Desk) -> None:
    agents = desk.repo / ".squad" / "agents"
    for name in ("flight", "eecom"):
        (agents / name).mkdir(parents=True)
        (agents / name / "charter.md").write_text(f"# {name}\n\nYou vote.\n")
    table = "| Name | Role |\n|---|---|\n| Flight | Lead |\n| EECOM | Dev |\n"
    (desk.repo / ".squad" / "team.md").write_text(f"# Crew\n\n## Members\n\n{table}")


def list_inbox(desk: Desk) -> list[Path]:
    return sorted((desk.repo / ".squad").glob("decisions/inbox/*"))


def test_decisions_of_a_squad_go_to_its_inbox_only_where_a_setting_says_so(desk: Desk) -> None:
    add_squad(desk)
    assert desk.invoke(*DRINK, "--by", "crew").stdout == "tea\n"
    assert list_inbox(desk) == []

    (desk.repo / "podium.yaml").write_text("squad_inbox: true\n")
    said = desk.invoke(*DRINK, "--by", "crew")
    merged = desk.invoke("decisions", "merge-inbox")
    again = desk.invoke("decisions", "merge-inbox", "--json")

    [name] = merged.stdout.split()
    assert name.startswith("person-which-drink-")
    assert f"Written to the squad's inbox: {name}" in said.stderr
    text = (desk.repo / ".squad" / "decisions.md").read_text()
    assert ": Which drink?\n**By:** person, flight, eecom\n**What:** tea (majority)\n" in text
    assert list_inbox(desk) == []
    assert json.loads(again.stdout) == {"schema": 1, "merged": [], "notices": []}
    assert desk.invoke("decisions", "merge-inbox").stderr == "the inbox is empty\n"


def test_decisions_of_other_teams_do_not_go_to_a_squad(desk: Desk) -> None:
    add_squad(desk)
    add_council(desk, "tea")
    (desk.repo / "podium.yaml").write_text("squad_inbox: true\n")

    desk.invoke(*DRINK, "--by", "council")

    assert list_inbox(desk) == []


def test_an_inbox_that_cannot_be_written_does_not_fail_the_decision(desk: Desk) -> None:
    add_squad(desk)
    (desk.repo / "podium.yaml").write_text("squad_inbox: true\n")
    (desk.repo / ".squad" / "decisions").write_text("not a folder")

    said = desk.invoke(*DRINK, "--by", "crew")

    assert (said.exit_code, said.stdout) == (0, "tea\n")
    assert "The decisions were not written to the squad's inbox: " in said.stderr


def test_without_a_squad_there_is_no_inbox_to_merge(desk: Desk) -> None:
    said = desk.invoke("decisions", "merge-inbox")

    assert (said.exit_code, "has no squad" in said.stderr) == (2, True)
