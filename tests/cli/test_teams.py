"""`podium teams` and `podium team`, as a person types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podium.cli.output.text import display_width
from podium.cli.teams.teams import NAMES
from podium.files.discovery import load_roster
from podium.patterns.member_tasks import as_member
from podium.values.tool_table import DEFAULT_TOOLS

from ..files.test_squad import TEAM, read_files, write_file, write_squad
from .conftest import Desk
from .test_terminal import Terminal


@pytest.fixture
def squad_desk(desk: Desk) -> Desk:
    """Make a desk in a repository with a squad."""
    write_squad(desk.repo)
    return desk


def list_teams(desk: Desk) -> dict[str, dict[str, Any]]:
    said = desk.invoke("teams", "--json")
    assert said.exit_code == 0, said.stderr
    return {team["name"]: team for team in json.loads(said.stdout)["teams"]}


def show_team(desk: Desk, name: str) -> dict[str, Any]:
    said = desk.invoke("team", "show", name, "--json")
    assert said.exit_code == 0, said.stderr
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def list_own_teams(desk: Desk) -> list[str]:
    return [team["name"] for team in json.loads((desk.home / "presets.json").read_text())["presets"]]


# --- listing


def test_teams_are_listed_in_three_sections(squad_desk: Desk) -> None:
    squad_desk.invoke("team", "set", "debate", "advocate", "--model", "opus")

    said = squad_desk.invoke("teams")

    lines = said.stdout.splitlines()
    ours, built_in, own = (lines.index(title) for title in ("From this repository", "Built-in", "Mine"))
    assert said.stderr == ""
    assert [line.split()[0] for line in lines[ours + 1 : built_in]] == ["mission-control"]
    assert "triage" in [line.split()[0] for line in lines[built_in + 1 : own]]
    assert "builtin:debate" in [line.split()[0] for line in lines[built_in + 1 : own]]
    assert [line.split()[:4] for line in lines[own + 1 :]] == [["debate", "discuss", "2", "members"]]


@pytest.mark.parametrize("words", [["teams"], ["team", "show", "pr-review"], ["agents"]])
def test_lists_keep_to_the_width_of_the_terminal(desk: Desk, words: list[str]) -> None:
    said = desk.run_podium(*words, COLUMNS="90").stdout.splitlines()

    tables = [line for line in said if line.startswith("  ") or words == ["agents"]]
    assert any(line.endswith("…") for line in tables)
    assert [line for line in tables if display_width(line) > 90] == []


def test_where_there_is_no_team_in_a_section_it_says_so(desk: Desk) -> None:
    lines = desk.invoke("teams").stdout.splitlines()

    assert lines[:2] == ["From this repository", "  none"]
    assert lines[-2:] == ["Mine", "  none"]


def test_a_team_is_shown_with_its_members(squad_desk: Desk) -> None:
    said = squad_desk.invoke("team", "show", "Mission Control")
    found = show_team(squad_desk, "mission-control")

    assert "squad, .squad/team.md" in said.stdout
    assert "  flight  claude-opus-4.5  Lead" in said.stdout
    assert [(one["name"], one["model"]) for one in found["members"]] == [("flight", "claude-opus-4.5"), ("eecom", "")]
    assert found["members"][1]["prompt"] == "You are a core developer. You write code."


def test_nothing_in_a_squad_acts_on_the_terminal(desk: Desk) -> None:
    write_squad(desk.repo, team=TEAM.replace("Core Dev", "Core \x1b[31mDev"))

    said = desk.invoke("team", "show", "mission-control")

    assert "\x1b" not in said.stdout
    assert "Core \\x1b[31mDev" in said.stdout


def test_a_squad_runs(squad_desk: Desk) -> None:
    said = squad_desk.run_podium("run", "mission-control", "fix it", "--dry-run")

    assert said.returncode == 0, said.stderr
    assert "mission-control: plans iteration 1 for flight, eecom" in said.stderr


@pytest.mark.parametrize("name", ["Mission Control", "mission-control", "MISSION control"])
def test_a_team_runs_by_its_name_however_it_is_written(squad_desk: Desk, name: str) -> None:
    said = squad_desk.run_podium("run", name, "fix it", "--dry-run")

    assert said.returncode == 0, said.stderr
    assert "mission-control: plans iteration 1" in said.stderr


def test_a_preset_with_a_name_of_one_capital_letter_runs(desk: Desk) -> None:
    write_file(desk.home / "presets.json", '{"version": 1, "presets": [{"name": "E", "workers": [{"name": "w"}]}]}')

    assert desk.run_podium("run", "E", "fix it", "--dry-run", "--quiet").returncode == 0


def test_a_preset_with_an_invalid_value_is_reported_and_does_not_run(desk: Desk) -> None:
    preset = {"name": "Crew", "worktrees": "zzz", "workers": [{"name": "w"}]}
    write_file(desk.home / "presets.json", json.dumps({"version": 1, "presets": [preset]}))

    run, listed, shown = (desk.invoke(*words) for words in (("run", "Crew", "x"), ("teams",), ("team", "show", "Crew")))

    for said in (run, listed, shown):
        assert said.stderr.count("\n") == 1
        assert 'Crew.worktrees: unknown value "zzz"; expected shared, team, lead or each' in said.stderr
    assert (run.exit_code, listed.exit_code, shown.exit_code) == (2, 0, 2)
    assert desk.runs() == []


@pytest.mark.parametrize(
    "team", ["pr-review", "implement-and-challenge", "debate", "plan-build-review", "broadcast-compare", "triage"]
)
def test_every_built_in_team_can_be_rehearsed(desk: Desk, team: str) -> None:
    said = desk.run_podium("run", team, "look at the change", "--dry-run", "--quiet")

    assert said.returncode == 0, said.stderr
    assert "[rehearsed]" in said.stdout


@pytest.mark.parametrize("name", NAMES)
def test_every_subcommand_of_team_has_help(desk: Desk, name: str) -> None:
    said = desk.invoke("team", name, "--help")

    assert said.exit_code == 0
    assert f"Usage: podium team {name}" in said.stdout


# --- saving


def test_what_is_saved_is_the_same_team_when_it_is_read_again(squad_desk: Desk) -> None:
    before, there = show_team(squad_desk, "mission-control"), read_files(squad_desk.repo)

    said = squad_desk.invoke("team", "save", "mission-control")

    assert said.exit_code == 0, said.stderr
    assert read_files(squad_desk.repo) == there
    assert show_team(squad_desk, "mission-control") == before
    assert show_team(squad_desk, "user:mission-control")["members"][0]["prompt"] == before["members"][0]["prompt"]
    assert list_teams(squad_desk)["user:mission-control"]["shadowed"]


def test_long_texts_come_back_whole_from_the_copy(desk: Desk) -> None:
    write_squad(desk.repo)
    charter, decisions = f"You are a tester.\n\n{'x' * 6000}", f"# Decisions\n\n{'y' * 9000}"
    write_file(desk.repo / ".squad/agents/eecom/charter.md", f"{charter}\n")
    write_file(desk.repo / ".squad/decisions.md", f"{decisions}\n")

    desk.invoke("team", "save", "Mission Control")
    exported = json.loads(desk.invoke("team", "export", "Mission Control").stdout)
    desk.invoke("team", "delete", "Mission Control", "--yes")
    used = show_team(desk, "Mission Control")
    saved = desk.invoke("team", "save", "Mission Control")

    assert saved.exit_code == 0, saved.stderr
    assert (desk.repo / ".squad/agents/eecom/charter.md").read_text() == f"{charter}\n"
    assert (desk.repo / ".squad/decisions.md").read_text() == f"{decisions}\n"
    assert exported["workers"][1]["prompt"] == charter
    assert exported["shared_context"] == decisions
    assert (used["kind"], len(used["members"][1]["prompt"])) == ("preset", 4000)


BUILT_IN_TEAMS = ("pr-review", "implement-and-challenge", "debate", "plan-build-review", "broadcast-compare")


def describe_team(desk: Desk, name: str) -> dict[str, Any]:
    """Return everything about a team that has an effect when it runs."""
    roster = load_roster(desk.repo, desk.home)
    lead = roster.get(name)
    assert lead.team is not None
    members = [as_member(roster.get(member.agent), member) for member in lead.team.members]
    return {
        "lead": (lead.description, lead.prompt, lead.model, lead.team.mode, lead.team.evaluator, lead.team.options),
        "names": [member.name or member.agent for member in lead.team.members],
        "members": [
            (one.role or one.description, one.prompt, one.model, one.tools or DEFAULT_TOOLS) for one in members
        ],
    }


@pytest.mark.parametrize("team", BUILT_IN_TEAMS)
def test_your_own_copy_of_a_built_in_team_loses_nothing(desk: Desk, team: str) -> None:
    before = describe_team(desk, team)

    said = desk.invoke("team", "save", team, "--mine")

    assert said.exit_code == 0, said.stderr
    assert describe_team(desk, f"user:{team}") == before
    assert not (desk.repo / ".squad").exists()


@pytest.mark.parametrize("team", BUILT_IN_TEAMS)
def test_a_built_in_team_is_saved_as_a_squad_only_when_its_losses_are_agreed_to(desk: Desk, team: str) -> None:
    before = describe_team(desk, team)

    refused = desk.invoke("team", "save", team)

    assert refused.exit_code == 2
    assert "the description, the lead's prompt" in refused.stderr
    assert "the members' tools" in refused.stderr
    assert all(key in refused.stderr for key in before["lead"][-1])
    assert f"{team} would run without them" in refused.stderr
    assert "Use --mine to save a complete copy for yourself only." in refused.stderr
    assert "use --yes to confirm" in refused.stderr
    assert not (desk.repo / ".squad").exists()
    assert not (desk.home / "presets.json").exists()
    assert describe_team(desk, team) == before

    assert desk.invoke("team", "save", team, "--yes").exit_code == 0

    assert show_team(desk, team)["kind"] == "squad"
    assert describe_team(desk, f"user:{team}") == before
    assert describe_team(desk, f"builtin:{team}") == before


@pytest.mark.parametrize("key", ["n", "y"])
def test_on_a_terminal_save_says_what_a_squad_would_lose_and_asks(desk: Desk, key: str) -> None:
    terminal = Terminal(desk, "team", "save", "debate", columns=400)

    terminal.wait_for("cannot store the description, the lead's prompt, the members' tools, termination and max_rounds")
    terminal.process.sendline(key)

    assert terminal.wait_exit() == (0 if key == "y" else 4)
    assert (desk.repo / ".squad/team.md").exists() is (key == "y")
    assert (desk.home / "presets.json").exists() is (key == "y")


@pytest.mark.parametrize(
    "words",
    [["save", "debate", "--mine"], ["save", "debate", "--yes"], ["set", "debate", "advocate", "--model", "opus"]],
)
def test_a_team_that_takes_the_name_of_a_built_in_one_says_where_that_is_now(desk: Desk, words: list[str]) -> None:
    said = desk.invoke("team", *words)

    assert said.exit_code == 0, said.stderr
    note = "note: debate now refers to this team; the built-in one is still available as builtin:debate\n"
    assert said.stderr.endswith(note)
    assert show_team(desk, "builtin:debate")["kind"] == "built-in"


def test_a_team_with_a_name_of_its_own_hides_nothing(desk: Desk, tmp_path: Path) -> None:
    desk.invoke("team", "export", "debate", str(tmp_path / "team.json"))

    said = desk.invoke("team", "save", "our-debate", "--from", str(tmp_path / "team.json"), "--mine")

    assert said.exit_code == 0, said.stderr
    assert "note:" not in said.stderr


def test_saving_a_squad_again_keeps_what_only_your_own_copy_has(desk: Desk) -> None:
    desk.invoke("team", "save", "implement-and-challenge", "--yes")
    desk.invoke("team", "set", "implement-and-challenge", "challenger", "--model", "opus")
    before = describe_team(desk, "user:implement-and-challenge")

    said = desk.invoke("team", "save", "implement-and-challenge")

    assert said.exit_code == 0, said.stderr
    assert before["lead"][-1] == {"max_iterations": 10, "participation": "all"}
    assert describe_team(desk, "user:implement-and-challenge") == before


def test_your_own_team_is_replaced_by_another_of_its_name_only_when_that_is_agreed_to(desk: Desk) -> None:
    desk.invoke("team", "set", "debate", "advocate", "--model", "opus")
    before = (desk.home / "presets.json").read_text()

    refused = desk.invoke("team", "save", "builtin:debate", "--mine")

    assert refused.exit_code == 2
    assert "Your own team debate differs from this one and would be replaced." in refused.stderr
    assert (desk.home / "presets.json").read_text() == before
    assert desk.invoke("team", "save", "builtin:debate", "--mine", "--yes").exit_code == 0
    assert [one["model"] for one in show_team(desk, "user:debate")["members"]] == ["", ""]
    assert desk.invoke("team", "save", "builtin:debate", "--mine").exit_code == 0


def test_another_squad_is_replaced_only_when_that_is_agreed_to(squad_desk: Desk) -> None:
    there = read_files(squad_desk.repo)

    refused = squad_desk.invoke("team", "save", "debate")

    assert refused.exit_code == 2
    expected = "The repository already has the squad Mission Control with Flight and EECOM, which would be replaced."
    assert expected in refused.stderr
    assert read_files(squad_desk.repo) == there
    assert not (squad_desk.home / "presets.json").exists()
    assert squad_desk.invoke("team", "save", "debate", "--yes").exit_code == 0
    assert list_teams(squad_desk)["debate"]["source"] == "repo"
    assert (squad_desk.repo / ".squad/agents/_alumni/flight/history.md").read_text() == "what flight learned"


def test_a_team_is_exported_to_a_file_and_saved_from_it(squad_desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "team.json"

    assert squad_desk.invoke("team", "export", "mission-control", str(file)).exit_code == 0
    said = squad_desk.invoke("team", "save", "Second Team", "--from", str(file), "--mine")

    assert said.exit_code == 0, said.stderr
    assert list_own_teams(squad_desk) == ["Second Team"]
    found = show_team(squad_desk, "second-team")
    assert [one["prompt"] for one in found["members"]] == [
        one["prompt"] for one in show_team(squad_desk, "mission-control")["members"]
    ]
    assert str(squad_desk.repo) not in file.read_text()
    assert squad_desk.invoke("team", "export", "mission-control").stdout == file.read_text()
    again = squad_desk.invoke("team", "export", "mission-control", str(file))
    assert again.exit_code == 2
    assert "already exists and was not overwritten" in again.stderr


@pytest.mark.parametrize("text", ["", "[]", '{"name": 1}', '{"name": "x"}', "\x00"])
def test_a_file_that_holds_no_team_is_refused(desk: Desk, tmp_path: Path, text: str) -> None:
    write_file(tmp_path / "team.json", text)

    said = desk.invoke("team", "save", "x", "--from", str(tmp_path / "team.json"))

    assert said.exit_code == 2
    assert "team.json" in said.stderr
    assert not (desk.repo / ".squad").exists()


def test_a_missing_file_is_reported_without_an_errno(desk: Desk) -> None:
    said = desk.invoke("team", "save", "x", "--from", "nosuch.json")

    sentence = (
        "nosuch.json cannot be read as a team (No such file or directory); use a file written by podium team export"
    )
    assert said.stderr == f"podium: {sentence}\n"


def test_an_empty_name_is_unknown(desk: Desk) -> None:
    said = desk.invoke("team", "show", "")

    assert said.exit_code == 2
    assert said.stderr.startswith('podium: team "" not found; available: ')


def test_a_broken_presets_file_is_reported_in_one_sentence_and_nothing_is_lost(squad_desk: Desk) -> None:
    write_file(squad_desk.home / "presets.json", "{ my teams")
    there = read_files(squad_desk.repo)

    listed, saved, changed = (
        squad_desk.invoke("teams"),
        squad_desk.invoke("team", "save", "mission-control"),
        squad_desk.invoke("team", "set", "mission-control", "flight", "--model", "opus"),
    )

    assert listed.exit_code == 0
    assert "mission-control" in listed.stdout
    assert len(listed.stderr.splitlines()) == 1
    assert "presets.json: cannot be read as a presets file" in listed.stderr
    for refused in (saved, changed):
        assert refused.exit_code == 2
        assert len(refused.stderr.splitlines()) == 1
        assert "fix it, or move it out of the way to start over" in refused.stderr
    assert read_files(squad_desk.repo) == there
    assert (squad_desk.home / "presets.json").read_text() == "{ my teams"


# --- changing


def test_a_member_gets_another_model_and_prompt(squad_desk: Desk) -> None:
    assert squad_desk.invoke("team", "set", "mission-control", "EECOM", "--model", "haiku").exit_code == 0
    assert (
        squad_desk.invoke("team", "set", "mission-control", "eecom", "--prompt", "-", input="You power.\n").exit_code
        == 0
    )

    eecom = show_team(squad_desk, "mission-control")["members"][1]

    assert (eecom["model"], eecom["prompt"]) == ("haiku", "You power.")
    assert squad_desk.invoke("team", "set", "mission-control", "eecom", "--model", "default").exit_code == 0
    assert show_team(squad_desk, "mission-control")["members"][1]["model"] == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["debate", "advocate"], "give --model, --prompt, or both"),
        (["debate", "ann", "--model", "opus"], 'member "ann" not found in debate; available: '),
        (["debate", "advocate", "--model", "nowhere:x"], "model provider 'nowhere' not found"),
        (["debate", "advocate", "--model", "no such model"], '"no such model" is not a model name; '),
        (["triage", "answer", "--model", "opus"], "triage is a router and has no members"),
        (["lead", "answer", "--model", "opus"], "answer of lead is defined in podium/builtin/agents/answer.md"),
    ],
)
def test_a_change_that_is_impossible_is_refused(desk: Desk, arguments: list[str], sentence: str) -> None:
    desk.write_agent("lead", team={"mode": "broadcast", "members": ["answer"]})

    said = desk.invoke("team", "set", *arguments)

    assert said.exit_code == 2
    assert sentence in said.stderr
    assert not (desk.home / "presets.json").exists()


def test_changing_a_built_in_team_does_not_replace_your_own_of_that_name(desk: Desk) -> None:
    desk.invoke("team", "set", "debate", "advocate", "--model", "opus")
    before = (desk.home / "presets.json").read_text()

    said = desk.invoke("team", "set", "builtin:debate", "opponent", "--model", "haiku")

    assert said.exit_code == 2
    assert "change user:debate instead" in said.stderr
    assert (desk.home / "presets.json").read_text() == before


@pytest.fixture
def interrupted_team_run(desk: Desk) -> str:
    """Make a team run that died in the middle."""
    desk.write_agent("lead", team={"mode": "sequential", "members": ["one", "two"]})
    desk.write_agent("one", "the first part")
    desk.write_agent("two", "the second part")
    died = desk.run_podium("run", "lead", "do it", PODIUM_FAULT="5")
    assert died.returncode == 137, died.stderr
    return desk.run_id()


@pytest.mark.parametrize("more", [[], ["--prompt", "You are quick."]])
def test_a_member_at_work_cannot_lose_its_model(desk: Desk, interrupted_team_run: str, more: list[str]) -> None:
    said = desk.invoke("team", "set", f"{interrupted_team_run}/two", "--model", "default", *more)

    assert said.exit_code == 2
    assert said.stderr.count("\n") == 1
    assert "--model default cannot be used for a run; give the name of a model" in said.stderr


@pytest.mark.parametrize("name", ["lead", ""])
def test_the_first_agent_of_a_run_is_not_changed_while_it_works(
    desk: Desk, interrupted_team_run: str, name: str
) -> None:
    said = desk.invoke("team", "set", f"{interrupted_team_run}/{name}", "--model", "opus")

    assert said.exit_code == 2
    assert (
        f"lead has already started its only operation in run {interrupted_team_run} and cannot be changed"
        in said.stderr
    )
    assert "you can change one and two" in said.stderr


def test_a_member_of_a_run_is_changed(desk: Desk, interrupted_team_run: str) -> None:
    said = desk.invoke("team", "set", f"{interrupted_team_run}/two", "--prompt", "You are quick.")

    assert said.exit_code == 0
    assert (
        f"changed: two in run {interrupted_team_run}, when it is resumed with podium resume {interrupted_team_run}"
        in said.stderr
    )


# --- deleting


def test_deleting_takes_the_squad_and_nothing_else(squad_desk: Desk) -> None:
    squad_desk.write_agent("other", "hello")
    write_squad(squad_desk.repo, ".ai-team", TEAM.replace("Mission Control", "Older"))
    squad_desk.invoke("team", "save", "mission-control")
    there = read_files(squad_desk.repo)

    said = squad_desk.invoke("team", "delete", "mission-control", "--yes")

    assert said.exit_code == 0, said.stderr
    assert "your own copy is kept" in said.stderr
    assert read_files(squad_desk.repo) == {path: text for path, text in there.items() if not path.startswith(".squad/")}
    assert [name for name, team in list_teams(squad_desk).items() if team["source"] == "repo"] == ["older"]
    assert list_own_teams(squad_desk) == ["Mission Control"]
    assert squad_desk.invoke("team", "delete", "mission-control", "--yes").exit_code == 0
    assert list_own_teams(squad_desk) == []
    assert squad_desk.invoke("team", "delete", "older", "--yes").exit_code == 0
    assert not (squad_desk.repo / ".ai-team").exists()


def test_without_a_terminal_nothing_is_deleted_that_was_not_agreed_to(squad_desk: Desk) -> None:
    there = read_files(squad_desk.repo)

    said = squad_desk.invoke("team", "delete", "mission-control", input="y\n")

    assert said.exit_code == 2
    assert "use --yes to confirm" in said.stderr
    assert read_files(squad_desk.repo) == there


@pytest.mark.parametrize(("key", "is_there"), [("n", True), ("y", False)])
def test_on_a_terminal_delete_asks_for_confirmation(squad_desk: Desk, key: str, is_there: bool) -> None:
    terminal = Terminal(squad_desk, "team", "delete", "mission-control", columns=200)

    terminal.wait_for(": the folder .squad with 10 files")
    terminal.process.sendline(key)

    assert terminal.wait_exit() == (4 if is_there else 0)
    assert ("nothing was changed" in terminal.lines) is is_there
    assert (squad_desk.repo / ".squad/team.md").exists() is is_there


def test_a_squad_that_is_a_link_is_not_deleted(desk: Desk, tmp_path: Path) -> None:
    write_squad(desk.repo / "vendor")
    (desk.repo / ".squad").symlink_to(desk.repo / "vendor" / ".squad")
    there = read_files(desk.repo)

    said = desk.invoke("team", "delete", "mission-control", "--yes")

    assert said.exit_code == 2
    assert "remove it yourself" in said.stderr
    assert (desk.repo / ".squad").is_symlink()
    assert read_files(desk.repo) == there


def test_a_squad_outside_of_the_repository_is_neither_read_nor_deleted(desk: Desk, tmp_path: Path) -> None:
    write_squad(tmp_path / "elsewhere")
    (desk.repo / ".squad").symlink_to(tmp_path / "elsewhere" / ".squad")
    there = read_files(tmp_path / "elsewhere")

    said = desk.invoke("team", "delete", "mission-control", "--yes")

    assert said.exit_code == 2
    assert 'team "mission-control" not found' in said.stderr
    assert "is outside the repository" in desk.invoke("teams").stderr
    assert read_files(tmp_path / "elsewhere") == there


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("debate", "debate is built in and cannot be deleted"), ("lead", "lead is defined in .podium/agents/lead.md")],
)
def test_other_teams_are_not_deleted(desk: Desk, name: str, sentence: str) -> None:
    desk.write_agent("lead", team={"mode": "broadcast", "members": ["answer"]})

    said = desk.invoke("team", "delete", name, "--yes")

    assert said.exit_code == 2
    assert sentence in said.stderr
    assert (desk.repo / ".podium/agents/lead.md").exists()
