"""`podium teams` and `podium team`, as a person types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podium.cli.commands.team import NAMES
from podium.cli.terminal.text import display_width

from ..roster.test_squad import TEAM, files, put, squad
from .conftest import Desk
from .test_terminal import Terminal


@pytest.fixture
def crew(desk: Desk) -> Desk:
    """A desk in a repository with a squad."""
    squad(desk.repo)
    return desk


def teams(desk: Desk) -> dict[str, dict[str, Any]]:
    said = desk.invoke("teams", "--json")
    assert said.exit_code == 0, said.stderr
    return {team["name"]: team for team in json.loads(said.stdout)["teams"]}


def show(desk: Desk, name: str) -> dict[str, Any]:
    said = desk.invoke("team", "show", name, "--json")
    assert said.exit_code == 0, said.stderr
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def mine(desk: Desk) -> list[str]:
    return [team["name"] for team in json.loads((desk.home / "presets.json").read_text())["presets"]]


# --- looking


def test_teams_are_listed_in_three_sections(crew: Desk) -> None:
    crew.invoke("team", "set", "debate", "advocate", "--model", "opus")

    said = crew.invoke("teams")

    lines = said.stdout.splitlines()
    ours, built_in, own = (lines.index(title) for title in ("From this repository", "Built-in", "Mine"))
    assert said.stderr == ""
    assert [line.split()[0] for line in lines[ours + 1 : built_in]] == ["mission-control"]
    assert "triage" in [line.split()[0] for line in lines[built_in + 1 : own]]
    assert "builtin:debate" in [line.split()[0] for line in lines[built_in + 1 : own]]
    assert [line.split()[:4] for line in lines[own + 1 :]] == [["debate", "discuss", "2", "members"]]


@pytest.mark.parametrize("words", [["teams"], ["team", "show", "pr-review"], ["agents"]])
def test_lists_keep_to_the_width_of_the_terminal(desk: Desk, words: list[str]) -> None:
    said = desk.podium(*words, COLUMNS="90").stdout.splitlines()

    tables = [line for line in said if line.startswith("  ") or words == ["agents"]]
    assert any(line.endswith("…") for line in tables)
    assert [line for line in tables if display_width(line) > 90] == []


def test_where_there_is_no_team_in_a_section_it_says_so(desk: Desk) -> None:
    lines = desk.invoke("teams").stdout.splitlines()

    assert lines[:2] == ["From this repository", "  none"]
    assert lines[-2:] == ["Mine", "  none"]


def test_a_team_is_shown_with_its_members(crew: Desk) -> None:
    said = crew.invoke("team", "show", "Mission Control")
    found = show(crew, "mission-control")

    assert "squad, .squad/team.md" in said.stdout
    assert "  flight  claude-opus-4.5  Lead" in said.stdout
    assert [(one["name"], one["model"]) for one in found["members"]] == [("flight", "claude-opus-4.5"), ("eecom", "")]
    assert found["members"][1]["prompt"] == "You are a core developer. You write code."


def test_nothing_in_a_squad_acts_on_the_terminal(desk: Desk) -> None:
    squad(desk.repo, team=TEAM.replace("Core Dev", "Core \x1b[31mDev"))

    said = desk.invoke("team", "show", "mission-control")

    assert "\x1b" not in said.stdout
    assert "Core \\x1b[31mDev" in said.stdout


def test_a_squad_runs(crew: Desk) -> None:
    said = crew.podium("run", "mission-control", "fix it", "--dry-run")

    assert said.returncode == 0, said.stderr
    assert "mission-control: plans iteration 1 for flight, eecom" in said.stderr


@pytest.mark.parametrize("name", ["Mission Control", "mission-control", "MISSION control"])
def test_a_team_runs_by_its_name_however_it_is_written(crew: Desk, name: str) -> None:
    said = crew.podium("run", name, "fix it", "--dry-run")

    assert said.returncode == 0, said.stderr
    assert "mission-control: plans iteration 1" in said.stderr


def test_a_preset_with_a_name_of_one_capital_letter_runs(desk: Desk) -> None:
    put(desk.home / "presets.json", '{"version": 1, "presets": [{"name": "E", "workers": [{"name": "w"}]}]}')

    assert desk.podium("run", "E", "fix it", "--dry-run", "--quiet").returncode == 0


def test_a_preset_with_a_value_that_cannot_be_is_told_and_does_not_run(desk: Desk) -> None:
    crew = {"name": "Crew", "worktrees": "zzz", "workers": [{"name": "w"}]}
    put(desk.home / "presets.json", json.dumps({"version": 1, "presets": [crew]}))

    run, listed, shown = (desk.invoke(*words) for words in (("run", "Crew", "x"), ("teams",), ("team", "show", "Crew")))

    for said in (run, listed, shown):
        assert said.stderr.count("\n") == 1
        assert 'Crew.worktrees: "zzz" is not known; shared, team, lead or each would be right' in said.stderr
    assert (run.exit_code, listed.exit_code, shown.exit_code) == (2, 0, 2)
    assert desk.runs() == []


@pytest.mark.parametrize(
    "team", ["pr-review", "implement-and-challenge", "debate", "plan-build-review", "broadcast-compare", "triage"]
)
def test_every_built_in_team_can_be_rehearsed(desk: Desk, team: str) -> None:
    said = desk.podium("run", team, "look at the change", "--dry-run", "--quiet")

    assert said.returncode == 0, said.stderr
    assert "[rehearsed]" in said.stdout


@pytest.mark.parametrize("name", NAMES)
def test_every_part_of_team_has_help(desk: Desk, name: str) -> None:
    said = desk.invoke("team", name, "--help")

    assert said.exit_code == 0
    assert f"Usage: podium team {name}" in said.stdout


# --- saving


def test_what_is_saved_is_the_same_team_when_it_is_read_again(crew: Desk) -> None:
    before, there = show(crew, "mission-control"), files(crew.repo)

    said = crew.invoke("team", "save", "mission-control")

    assert said.exit_code == 0, said.stderr
    assert files(crew.repo) == there
    assert show(crew, "mission-control") == before
    assert show(crew, "user:mission-control")["members"][0]["prompt"] == before["members"][0]["prompt"]
    assert teams(crew)["user:mission-control"]["shadowed"]


def test_long_texts_come_back_whole_from_the_copy(desk: Desk) -> None:
    squad(desk.repo)
    charter, decisions = f"You are a tester.\n\n{'x' * 6000}", f"# Decisions\n\n{'y' * 9000}"
    put(desk.repo / ".squad/agents/eecom/charter.md", f"{charter}\n")
    put(desk.repo / ".squad/decisions.md", f"{decisions}\n")

    desk.invoke("team", "save", "Mission Control")
    exported = json.loads(desk.invoke("team", "export", "Mission Control").stdout)
    desk.invoke("team", "delete", "Mission Control", "--yes")
    used = show(desk, "Mission Control")
    saved = desk.invoke("team", "save", "Mission Control")

    assert saved.exit_code == 0, saved.stderr
    assert (desk.repo / ".squad/agents/eecom/charter.md").read_text() == f"{charter}\n"
    assert (desk.repo / ".squad/decisions.md").read_text() == f"{decisions}\n"
    assert exported["workers"][1]["prompt"] == charter
    assert exported["shared_context"] == decisions
    assert (used["kind"], len(used["members"][1]["prompt"])) == ("preset", 4000)


def test_a_built_in_team_can_be_the_repositorys(desk: Desk) -> None:
    said = desk.invoke("team", "save", "implement-and-challenge")

    assert said.exit_code == 0, said.stderr
    assert "no place for the lead's prompt, max_iterations, tools and participation" in said.stderr
    found = show(desk, "implement-and-challenge")
    assert (found["kind"], found["mode"]) == ("squad", "reflect")
    assert [one["name"] for one in found["members"]] == ["implementer", "challenger"]
    assert show(desk, "user:implement-and-challenge")["options"] == {"max_iterations": 10, "participation": "all"}
    assert desk.podium("run", "implement-and-challenge", "x", "--dry-run", "--quiet").returncode == 0


def test_another_squad_is_replaced_only_when_that_is_agreed_to(crew: Desk) -> None:
    there = files(crew.repo)

    refused = crew.invoke("team", "save", "debate")

    assert refused.exit_code == 2
    assert "The repository's squad is Mission Control with Flight and EECOM; replace it by debate?" in refused.stderr
    assert files(crew.repo) == there
    assert not (crew.home / "presets.json").exists()
    assert crew.invoke("team", "save", "debate", "--yes").exit_code == 0
    assert teams(crew)["debate"]["source"] == "repo"
    assert (crew.repo / ".squad/agents/_alumni/flight/history.md").read_text() == "what flight learned"


def test_a_team_goes_elsewhere_by_a_file(crew: Desk, tmp_path: Path) -> None:
    file = tmp_path / "team.json"

    assert crew.invoke("team", "export", "mission-control", str(file)).exit_code == 0
    said = crew.invoke("team", "save", "Second Team", "--from", str(file), "--mine")

    assert said.exit_code == 0, said.stderr
    assert mine(crew) == ["Second Team"]
    found = show(crew, "second-team")
    assert [one["prompt"] for one in found["members"]] == [
        one["prompt"] for one in show(crew, "mission-control")["members"]
    ]
    assert str(crew.repo) not in file.read_text()
    assert crew.invoke("team", "export", "mission-control").stdout == file.read_text()
    again = crew.invoke("team", "export", "mission-control", str(file))
    assert again.exit_code == 2
    assert "is there already" in again.stderr


@pytest.mark.parametrize("text", ["", "[]", '{"name": 1}', '{"name": "x"}', "\x00"])
def test_a_file_that_holds_no_team_is_refused(desk: Desk, tmp_path: Path, text: str) -> None:
    put(tmp_path / "team.json", text)

    said = desk.invoke("team", "save", "x", "--from", str(tmp_path / "team.json"))

    assert said.exit_code == 2
    assert "team.json" in said.stderr
    assert not (desk.repo / ".squad").exists()


def test_a_file_that_is_not_there_is_told_without_numbers_of_the_system(desk: Desk) -> None:
    said = desk.invoke("team", "save", "x", "--from", "nosuch.json")

    sentence = "nosuch.json cannot be read as a team (No such file or directory); podium team export writes such files"
    assert said.stderr == f"podium: {sentence}\n"


def test_an_empty_name_is_nobodys(desk: Desk) -> None:
    said = desk.invoke("team", "show", "")

    assert said.exit_code == 2
    assert said.stderr.startswith('podium: there is no team ""; there are ')


def test_a_broken_presets_file_is_told_in_one_sentence_and_nothing_is_lost(crew: Desk) -> None:
    put(crew.home / "presets.json", "{ my teams")
    there = files(crew.repo)

    listed, saved, changed = (
        crew.invoke("teams"),
        crew.invoke("team", "save", "mission-control"),
        crew.invoke("team", "set", "mission-control", "flight", "--model", "opus"),
    )

    assert listed.exit_code == 0
    assert "mission-control" in listed.stdout
    assert len(listed.stderr.splitlines()) == 1
    assert "presets.json: cannot be read as presets" in listed.stderr
    for refused in (saved, changed):
        assert refused.exit_code == 2
        assert len(refused.stderr.splitlines()) == 1
        assert "mend it, or move it away to begin anew" in refused.stderr
    assert files(crew.repo) == there
    assert (crew.home / "presets.json").read_text() == "{ my teams"


# --- changing


def test_a_member_gets_another_model_and_prompt(crew: Desk) -> None:
    assert crew.invoke("team", "set", "mission-control", "EECOM", "--model", "haiku").exit_code == 0
    assert crew.invoke("team", "set", "mission-control", "eecom", "--prompt", "-", input="You power.\n").exit_code == 0

    eecom = show(crew, "mission-control")["members"][1]

    assert (eecom["model"], eecom["prompt"]) == ("haiku", "You power.")
    assert crew.invoke("team", "set", "mission-control", "eecom", "--model", "default").exit_code == 0
    assert show(crew, "mission-control")["members"][1]["model"] == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["debate", "advocate"], "give --model, --prompt, or both"),
        (["debate", "ann", "--model", "opus"], 'debate has no member "ann"; there are '),
        (["debate", "advocate", "--model", "nowhere:x"], "there is no provider of models called 'nowhere'"),
        (["debate", "advocate", "--model", "no such model"], '"no such model" is not the name of a model; '),
        (["triage", "answer", "--model", "opus"], "triage is a router and has no members"),
        (["lead", "answer", "--model", "opus"], "answer of lead is the agent file podium/builtin/agents/answer.md"),
    ],
)
def test_what_cannot_be_changed_is_told(desk: Desk, arguments: list[str], sentence: str) -> None:
    desk.agent("lead", team={"mode": "broadcast", "members": ["answer"]})

    said = desk.invoke("team", "set", *arguments)

    assert said.exit_code == 2
    assert sentence in said.stderr
    assert not (desk.home / "presets.json").exists()


@pytest.fixture
def parted(desk: Desk) -> str:
    """A run of a team that died in the middle."""
    desk.agent("lead", team={"mode": "sequential", "members": ["one", "two"]})
    desk.agent("one", "the first part")
    desk.agent("two", "the second part")
    died = desk.podium("run", "lead", "do it", PODIUM_FAULT="5")
    assert died.returncode == 137, died.stderr
    return desk.run_id()


@pytest.mark.parametrize("more", [[], ["--prompt", "You are quick."]])
def test_a_member_at_work_cannot_lose_its_model(desk: Desk, parted: str, more: list[str]) -> None:
    said = desk.invoke("team", "set", f"{parted}/two", "--model", "default", *more)

    assert said.exit_code == 2
    assert said.stderr.count("\n") == 1
    assert "a member at work can get a model and cannot lose one; name what it should think with" in said.stderr


@pytest.mark.parametrize("name", ["lead", ""])
def test_the_first_agent_of_a_run_is_not_changed_while_it_works(desk: Desk, parted: str, name: str) -> None:
    said = desk.invoke("team", "set", f"{parted}/{name}", "--model", "opus")

    assert said.exit_code == 2
    assert f"lead has only one part in run {parted}, and cannot be changed while it works" in said.stderr
    assert "one and two can be" in said.stderr


def test_a_member_of_a_run_is_changed(desk: Desk, parted: str) -> None:
    said = desk.invoke("team", "set", f"{parted}/two", "--prompt", "You are quick.")

    assert said.exit_code == 0
    assert f"changed: two of run {parted}, when podium resume {parted} goes on" in said.stderr


# --- deleting


def test_deleting_takes_the_squad_and_nothing_else(crew: Desk) -> None:
    crew.agent("other", "hello")
    squad(crew.repo, ".ai-team", TEAM.replace("Mission Control", "Older"))
    crew.invoke("team", "save", "mission-control")
    there = files(crew.repo)

    said = crew.invoke("team", "delete", "mission-control", "--yes")

    assert said.exit_code == 0, said.stderr
    assert "your own copy stays" in said.stderr
    assert files(crew.repo) == {path: text for path, text in there.items() if not path.startswith(".squad/")}
    assert [name for name, team in teams(crew).items() if team["source"] == "repo"] == ["older"]
    assert mine(crew) == ["Mission Control"]
    assert crew.invoke("team", "delete", "mission-control", "--yes").exit_code == 0
    assert mine(crew) == []
    assert crew.invoke("team", "delete", "older", "--yes").exit_code == 0
    assert not (crew.repo / ".ai-team").exists()


def test_without_a_terminal_nothing_is_deleted_that_was_not_agreed_to(crew: Desk) -> None:
    there = files(crew.repo)

    said = crew.invoke("team", "delete", "mission-control", input="y\n")

    assert said.exit_code == 2
    assert "--yes agrees to it" in said.stderr
    assert files(crew.repo) == there


@pytest.mark.parametrize(("key", "is_there"), [("n", True), ("y", False)])
def test_on_a_terminal_it_is_asked_first(crew: Desk, key: str, is_there: bool) -> None:
    terminal = Terminal(crew, "team", "delete", "mission-control", columns=200)

    terminal.wait_for("which is the folder .squad with 10 files")
    terminal.process.sendline(key)

    assert terminal.end() == (130 if is_there else 0)
    assert (crew.repo / ".squad/team.md").exists() is is_there


def test_a_squad_that_is_a_link_is_not_deleted(desk: Desk, tmp_path: Path) -> None:
    squad(desk.repo / "vendor")
    (desk.repo / ".squad").symlink_to(desk.repo / "vendor" / ".squad")
    there = files(desk.repo)

    said = desk.invoke("team", "delete", "mission-control", "--yes")

    assert said.exit_code == 2
    assert "remove it yourself" in said.stderr
    assert (desk.repo / ".squad").is_symlink()
    assert files(desk.repo) == there


def test_a_squad_outside_of_the_repository_is_neither_read_nor_deleted(desk: Desk, tmp_path: Path) -> None:
    squad(tmp_path / "elsewhere")
    (desk.repo / ".squad").symlink_to(tmp_path / "elsewhere" / ".squad")
    there = files(tmp_path / "elsewhere")

    said = desk.invoke("team", "delete", "mission-control", "--yes")

    assert said.exit_code == 2
    assert 'there is no team "mission-control"' in said.stderr
    assert "leads out of the repository" in desk.invoke("teams").stderr
    assert files(tmp_path / "elsewhere") == there


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("debate", "debate ships with Podium and stays"), ("lead", "lead is the agent file .podium/agents/lead.md")],
)
def test_other_teams_are_not_deleted(desk: Desk, name: str, sentence: str) -> None:
    desk.agent("lead", team={"mode": "broadcast", "members": ["answer"]})

    said = desk.invoke("team", "delete", name, "--yes")

    assert said.exit_code == 2
    assert sentence in said.stderr
    assert (desk.repo / ".podium/agents/lead.md").exists()
