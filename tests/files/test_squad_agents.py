"""Agents that squads and presets add to the roster."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from podium import App, Settings
from podium.files import presets
from podium.files.agent_name import is_agent_name
from podium.files.discovery import PRESETS_FILE, SQUAD_FOLDERS, Roster, load_roster
from podium.files.presets import Preset, PresetWorker
from podium.files.squad import discover
from podium.files.squad.squad_folder import BACKUP_SUFFIX, LEGACY_SQUAD_FOLDER, SQUAD_FOLDER
from podium.files.team_definition import change_team_member, delete_team, find_team, preset_from_agents, save_team
from podium.testing import ModelServer
from podium.values.agent import Agent, Member, Team
from podium.values.errors import BadAgent, Mistake
from podium.values.tool_table import DEFAULT_TOOLS, DEFAULT_WORKER_TOOLS

from .test_squad import write_file, write_squad


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return write_squad(tmp_path / "repo")


def own_names(roster: Roster) -> list[str]:
    return [agent.name for agent in roster.agents.values() if agent.source != "built-in"]


def format_diagnostics(roster: Roster) -> list[str]:
    return [f"{diagnostic.severity}: {diagnostic}" for diagnostic in roster.diagnostics]


def write_presets(home: Path, *entries: dict[str, Any]) -> None:
    home.mkdir(exist_ok=True)
    (home / "presets.json").write_text(json.dumps({"version": 1, "presets": entries}))


def list_members(lead: Agent) -> list[tuple[str, str]]:
    assert lead.team is not None
    return [(member.name, member.agent) for member in lead.team.members]


# --- squads


def test_a_squad_is_a_lead_and_an_agent_for_each_member(repo: Path, home: Path) -> None:
    roster = load_roster(repo, home)

    lead, flight, eecom = (roster.get(name) for name in ("mission-control", "flight", "eecom"))
    assert own_names(roster) == ["eecom", "flight", "mission-control"]
    assert (lead.source, lead.path, lead.display_name) == ("repo", ".squad/team.md", "Mission Control")
    assert lead.team is not None
    assert (lead.team.mode, list_members(lead)) == ("reflect", [("", "flight"), ("", "eecom")])
    assert lead.team.options == {
        "shared_context": "# Decisions\n\n## Use async\n\nAlways.",
        "routing": "# Routing\n\nAsk EECOM.",
    }
    assert (flight.display_name, flight.model, flight.role) == ("Flight", "claude-opus-4.5", "Lead")
    assert flight.prompt.startswith("# Flight — Lead")
    assert flight.capabilities == ("Product vision", "architecture")
    assert (eecom.prompt, eecom.tools) == ("You are a core developer. You write code.", DEFAULT_WORKER_TOOLS)
    assert [agent.name for agent in roster.resolve_team("mission-control")] == ["mission-control", "flight", "eecom"]
    assert roster.diagnostics == roster.check() == ()


def test_a_member_has_the_fallback_models_of_its_charter(repo: Path, home: Path) -> None:
    write_file(
        repo / ".squad/agents/flight/charter.md",
        "You fly.\n\n## Model\n\nPreferred: opus\nFallback: sonnet -> openai:gpt-5-mini\n",
    )

    flight = load_roster(repo, home).get("flight")

    assert (flight.model, flight.fallback_models) == ("opus", ("sonnet", "openai:gpt-5-mini"))


async def test_a_squads_lead_assigns_work_by_the_names_in_its_routing_and_sees_the_expertise(tmp_path: Path) -> None:
    squad = tmp_path / "repo/.squad"
    write_file(
        squad / "team.md",
        "# Crew\nmode: orchestrator\n\n## Roster\n\n| Name | Role | Charter | Status |\n|-|-|-|-|\n"
        "| Steve Rogers | Lead | x | Active |\n| Ada 🔧 | Backend | x | Active |\n",
    )
    write_file(squad / "agents/steve-rogers/charter.md", "# Steve Rogers\n\n- **Expertise:** Planning, tactics\n")
    write_file(squad / "agents/ada/charter.md", "# Ada\n\n- **Expertise:** SQL\n")
    write_file(
        squad / "routing.md", "## Routing Table\n\n| Work | To |\n|-|-|\n| Plans | Steve Rogers |\n| Code | Ada 🔧 |\n"
    )
    plan = '[{"worker": "Steve Rogers", "task": "plan it"}, {"worker": "Ada 🔧", "task": "build it"}]'

    async with ModelServer([plan, "the answer"]) as server:
        environ = {"OPENAI_API_KEY": "sk-one-111111", "OPENAI_BASE_URL": server.url}
        async with App(Settings.load(environ, home=tmp_path / "home"), environ=environ) as app:
            result = await app.run("crew", "go", repo=tmp_path / "repo")

    assert result.text == "the answer"
    assert [(part.agent, part.outcome) for part in result.parts] == [
        ("steve-rogers", "succeeded"),
        ("ada", "succeeded"),
    ]
    first = server.calls[0].call.messages[-1].text
    assert "- steve-rogers, also called Steve Rogers (default model): Lead. Expertise: Planning, tactics" in first
    assert "- ada, also called Ada 🔧 (default model): Backend. Expertise: SQL" in first


def test_a_member_without_a_charter_works_all_the_same(tmp_path: Path, home: Path) -> None:
    write_file(
        tmp_path / "repo/.ai-team/team.md", "# Crew\nmode: broadcast\n| Member | Role |\n|-|-|\n| Core Dev | Codes |\n"
    )
    (tmp_path / "repo/.ai-team/agents").mkdir()

    roster = load_roster(tmp_path / "repo", home)

    assert roster.get("crew").path == ".ai-team/team.md"
    assert "You are core-dev, a worker of this team." in roster.get("core-dev").prompt


def test_agent_files_win_over_a_squad_and_its_members_are_renamed(repo: Path, home: Path) -> None:
    write_file(repo / ".podium/agents/flight.md", "---\n---\nYou fly.")
    write_file(repo / ".podium/agents/mission-control.md", "---\ndescription: Ours.\n---\nYou lead.")
    write_file(repo / ".claude/agents/eecom.md", "---\ndescription: Claude's.\n---\nYou power.")

    roster = load_roster(repo, home)

    assert roster.get("mission-control").description == "Ours."
    assert roster.get("flight").prompt == "You fly."
    assert roster.get("eecom").description == "Claude's."
    hidden = next(agent for agent in roster.shadowed if agent.path == ".squad/team.md")
    assert list_members(hidden) == [("flight", "mission-control-flight"), ("eecom", "mission-control-eecom")]
    assert roster.get("mission-control-flight").role == "Lead"
    message = "another agent is called flight, so flight from mission-control is available as mission-control-flight"
    assert format_diagnostics(roster)[0] == f"notice: .squad/team.md: members: {message}"


def test_a_member_does_not_take_the_place_of_a_built_in_agent(tmp_path: Path, home: Path) -> None:
    write_file(tmp_path / ".squad/team.md", "# T\n## Members\n| Name | Role |\n|-|-|\n| Answer | A |\n| T | B |\n")
    (tmp_path / ".squad/agents").mkdir()

    roster = load_roster(tmp_path, home)

    assert roster.get("answer").source == "built-in"
    assert list_members(roster.get("t")) == [("answer", "t-answer"), ("t", "t-t")]
    assert roster.check(["t"]) == ()


@pytest.mark.parametrize("mode", ["reflect", "sequential"])
def test_what_a_squad_shares_is_shared_context_of_its_team_in_every_mode(tmp_path: Path, home: Path, mode: str) -> None:
    write_file(tmp_path / ".squad/team.md", f"# T\nmode: {mode}\n## Members\n| Name | Role |\n|-|-|\n| Ann | A |\n")
    write_file(tmp_path / ".squad/agents/ann/charter.md", "You are Ann.")
    write_file(tmp_path / ".squad/decisions.md", "Use async.")

    roster = load_roster(tmp_path, home)

    lead = roster.get("t")
    assert lead.team is not None
    assert lead.team.options["shared_context"] == "Use async."
    assert lead.team.members[0].prompt == ""
    assert roster.get("ann").prompt == "You are Ann."


def test_notices_of_a_squad_are_diagnostics_and_stop_nothing(repo: Path, home: Path, tmp_path: Path) -> None:
    write_file(repo / ".squad/agents/eecom/charter.md", "x" * 5000)
    write_file(repo / ".squad/agents/flight/charter.md", "You fly.\n\n## Model\n\nPreferred: Claude Opus 4.5\n")
    write_file(tmp_path / "outside.md", "# Elsewhere")
    other = tmp_path / "other"
    (other / ".squad").mkdir(parents=True)
    (other / ".squad/team.md").symlink_to(tmp_path / "outside.md")

    assert len(load_roster(repo, home).get("eecom").prompt) == 4000
    assert [line.split(":")[0] for line in format_diagnostics(load_roster(repo, home))] == ["notice", "warning"]
    assert load_roster(repo, home).get("flight").model == ""
    assert "is outside the repository" in format_diagnostics(load_roster(other, home))[0]
    assert own_names(load_roster(other, home)) == []


def test_the_paths_that_are_probed_first_are_those_that_are_read() -> None:
    assert {*SQUAD_FOLDERS} == {
        f"{name}{end}" for name in (SQUAD_FOLDER, LEGACY_SQUAD_FOLDER) for end in ("", BACKUP_SUFFIX)
    }
    assert PRESETS_FILE == presets.PRESETS_FILE


def test_without_squads_and_presets_their_code_is_not_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from podium.files.discovery import load_roster; "
        f"load_roster(Path({str(tmp_path)!r}), Path({str(tmp_path / 'home')!r})); "
        "print('podium.files.squad' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


# --- presets


def test_presets_are_teams_of_the_person(tmp_path: Path, home: Path) -> None:
    write_presets(
        home,
        {
            "name": "Writers",
            "mode": "sequential",
            "lead_model": "opus",
            "workers": [{"prompt": "You draft. Well."}, {}],
        },
        {"name": "writers!", "workers": [{"name": "worker-1", "tools": ["read_file"]}], "max_iterations": 3},
    )

    roster = load_roster(tmp_path, home)

    writers, others = roster.get("writers"), roster.get("writers-2")
    assert (writers.source, writers.model, writers.display_name) == ("user", "opus", "Writers")
    assert list_members(writers) == [("", "worker-1"), ("", "worker-2")]
    assert list_members(others) == [("worker-1", "writers-2-worker-1")]
    assert roster.get("writers-2-worker-1").tools == ("read_file",)
    assert others.team is not None
    assert others.team.options == {"max_iterations": 3}
    assert roster.check() == ()


def test_a_key_of_a_preset_that_has_no_effect_in_its_mode_is_warned_about(tmp_path: Path, home: Path) -> None:
    given = {"max_iterations": 3, "manner": {"max_rounds": 2, "fresh": False, "max_concurrent": 2}}
    write_presets(home, {"name": "Crew", "mode": "reflect", "workers": [{"name": "w"}], **given})

    [warning] = format_diagnostics(load_roster(tmp_path, home))

    assert warning.startswith("warning: ")
    assert warning.endswith("Crew.manner.max_rounds: has no effect in reflect mode, only in discuss")


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"worktrees": "zzz"}, 'Crew.worktrees: unknown value "zzz"; expected shared, team, lead or each'),
        ({"worktrees": 7}, "Crew.worktrees: expected shared, team, lead or each, got the number 7"),
        ({"max_iterations": -3}, "Crew.max_iterations: expected an integer of at least 1, got the number -3"),
        (
            {"max_iterations": 10**30},
            "Crew.max_iterations: expected an integer of at least 1, got the number 1000000000000000000000000000000",
        ),
        (
            {"manner": {"worker_timeout": -5}},
            "Crew.manner.worker_timeout: expected a number above 0, got the number -5",
        ),
        ({"manner": {"round_timeout": 0}}, "Crew.manner.round_timeout: expected a number above 0, got the number 0"),
        (
            {"manner": {"max_rounds": -1}},
            "Crew.manner.max_rounds: expected an integer of at least 1, got the number -1",
        ),
        ({"manner": {"dispatch": True}}, "Crew.manner.dispatch: expected ask or force, got the boolean true"),
        ({"manner": {"prompts": ["x"]}}, "Crew.manner.prompts: expected a mapping of names to strings, got a list"),
        ({"manner": []}, "Crew.manner: expected a mapping with keys such as dispatch, got a list"),
    ],
)
def test_a_preset_is_read_as_strictly_as_an_agent_file(
    tmp_path: Path, home: Path, said: dict[str, Any], sentence: str
) -> None:
    write_presets(
        home, {"name": "Crew", "workers": [{"name": "w"}], **said}, {"name": "crew!", "workers": [{"name": "v"}]}
    )

    roster = load_roster(tmp_path, home)

    (diagnostic,) = [diagnostic for diagnostic in roster.diagnostics if diagnostic.severity == "error"]
    assert sentence in str(diagnostic)
    for name in ("Crew", "crew", "user:crew"):
        with pytest.raises(BadAgent, match=re.escape(sentence)):
            roster.resolve_team(name)
    assert [agent.name for agent in roster.resolve_team("crew!")] == ["crew-2", "v"]
    assert "w" not in roster.agents


def test_every_wrong_value_in_a_preset_is_reported(tmp_path: Path, home: Path) -> None:
    write_presets(
        home, {"name": "Crew", "worktrees": "zzz", "max_iterations": 0, "manner": {"max_rounds": 0, "dispatch": "no"}}
    )

    roster = load_roster(tmp_path, home)

    keys = [diagnostic.key.removeprefix("Crew.") for diagnostic in roster.diagnostics]
    assert sorted(keys) == ["manner.dispatch", "manner.max_rounds", "max_iterations", "worktrees"]


def test_empty_values_and_other_spellings_in_a_preset_are_accepted(tmp_path: Path, home: Path) -> None:
    mode_options = {"termination": "maxRounds", "max_rounds": 3, "worker_timeout": None}
    write_presets(
        home,
        {
            "name": "Crew",
            "mode": "discuss",
            "worktrees": "",
            "max_iterations": None,
            "manner": mode_options,
            "workers": [{"name": "w"}],
        },
    )

    roster = load_roster(tmp_path, home)

    assert roster.diagnostics == ()
    team = roster.get("crew").team
    assert team is not None
    assert team.options == {"termination": "max_rounds", "max_rounds": 3}


def test_an_invalid_value_is_not_saved(tmp_path: Path, home: Path) -> None:
    preset = Preset(name="Crew", worktrees="zzz", workers=(PresetWorker(name="w"),))

    with pytest.raises(Mistake, match='unknown value "zzz"'):
        save_team(preset, repo=tmp_path, home=home)
    with pytest.raises(Mistake, match='unknown value "zzz"'):
        presets.save_preset(home, preset)
    assert not (tmp_path / ".squad").exists()


def test_a_preset_that_the_squad_hides_keeps_its_own_members(repo: Path, home: Path) -> None:
    team = discover(repo)
    assert team is not None
    presets.save_preset(home, presets.preset_from_team(team))

    roster = load_roster(repo, home)

    assert list_members(roster.get("mission-control")) == [("", "flight"), ("", "eecom")]
    assert list_members(roster.get("user:mission-control")) == [("flight", "user:flight"), ("eecom", "user:eecom")]
    assert [agent.source for agent in roster.resolve_team("user:mission-control")] == ["user"] * 3
    assert roster.diagnostics == ()


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b'{"version": 2, "presets": []}'])
def test_a_presets_file_that_cannot_be_read_is_one_diagnostic_and_stays(
    tmp_path: Path, home: Path, data: bytes
) -> None:
    home.mkdir()
    (home / "presets.json").write_bytes(data)

    roster = load_roster(tmp_path, home)

    assert [diagnostic.severity for diagnostic in roster.diagnostics] == ["error"]
    assert "presets.json: cannot be read as a presets file" in format_diagnostics(roster)[0]
    assert own_names(roster) == []
    assert (home / "presets.json").read_bytes() == data


names = st.text(max_size=90) | st.sampled_from(["a", "A", "a b", "answer", "team", "x" * 80])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(st.lists(st.tuples(names, st.lists(names, max_size=4)), max_size=4))
def test_each_agent_has_a_unique_name_whatever_the_teams_are_called(
    tmp_path: Path, teams: list[tuple[str, list[str]]]
) -> None:
    home = tmp_path / "home"
    write_presets(
        home, *({"name": name, "workers": [{"name": one} for one in workers or ["w"]]} for name, workers in teams)
    )

    roster = load_roster(tmp_path / "repo", home)

    found = [
        agent for agent in roster.by_qualified_name.values() if isinstance(agent, Agent) and agent.source == "user"
    ]
    assert len(found) == sum(1 + len(workers or ["w"]) for _, workers in teams)
    assert all(is_agent_name(agent.name) for agent in found)
    assert roster.check() == ()


# --- definitions


def test_saving_and_loading_gives_the_same_team(repo: Path, home: Path, tmp_path: Path) -> None:
    roster = load_roster(repo, home)
    found = find_team("Mission Control", roster, repo=repo, home=home)
    other = tmp_path / "other"
    other.mkdir()

    save_team(found.as_preset(), repo=other, home=home, team=found.squad)

    again = load_roster(other, home)
    before, after = (one.get("mission-control") for one in (roster, again))
    assert after == before
    for name in ("flight", "eecom"):  # they are now listed by the names of their folders
        assert structs.replace(again.get(name), display_name=roster.get(name).display_name) == roster.get(name)


def test_a_built_in_team_as_a_preset_is_the_same_team(tmp_path: Path, home: Path) -> None:
    for name in ("pr-review", "debate", "implement-and-challenge", "plan-build-review", "broadcast-compare"):
        built_in = load_roster(tmp_path, home).get(f"builtin:{name}")
        found = find_team(name, load_roster(tmp_path, home), repo=tmp_path, home=home)

        save_team(found.as_preset(), repo=None, home=home)

        mine = find_team(name, load_roster(tmp_path, home), repo=tmp_path, home=home)
        assert mine.kind == "preset"
        assert mine.lead.team is not None
        assert built_in.team is not None
        assert (mine.lead.prompt, mine.lead.team.mode) == (built_in.prompt, built_in.team.mode)
        assert mine.lead.team.options == built_in.team.options
        assert [one.tools for one in mine.members] == [one.tools or DEFAULT_TOOLS for one in found.members]
        assert mine.as_preset() == found.as_preset()


def test_a_change_goes_where_the_team_is_kept(repo: Path, home: Path) -> None:
    found = find_team("mission-control", load_roster(repo, home), repo=repo, home=home)
    save_team(found.as_preset(), repo=repo, home=home, team=found.squad)

    kept = change_team_member(found, "EECOM", repo=repo, home=home, model="sonnet", prompt="You power.")

    assert kept == "squad"
    for name in ("eecom", "user:eecom"):
        assert (load_roster(repo, home).get(name).model, load_roster(repo, home).get(name).prompt) == (
            "sonnet",
            "You power.",
        )
    assert (repo / ".squad/agents/flight/history.md").read_text() == "what flight learned"


def test_a_changed_built_in_team_is_one_of_the_persons_own(tmp_path: Path, home: Path) -> None:
    found = find_team("debate", load_roster(tmp_path, home), repo=tmp_path, home=home)

    assert change_team_member(found, "advocate", repo=tmp_path, home=home, model="opus") == "preset"

    roster = load_roster(tmp_path, home)
    assert [agent.model for agent in roster.resolve_team("debate")] == ["", "opus", ""]
    assert roster.get("advocate").model == ""
    assert list(tmp_path.iterdir()) == [home]


def test_agent_files_are_not_rewritten(tmp_path: Path, home: Path) -> None:
    write_file(tmp_path / ".podium/agents/lead.md", "---\nteam: {mode: broadcast, members: [answer]}\n---\nYou lead.")
    found = find_team("lead", load_roster(tmp_path, home), repo=tmp_path, home=home)

    with pytest.raises(Mistake, match=r"is defined in podium/builtin/agents/answer\.md; change model there"):
        change_team_member(found, "answer", repo=tmp_path, home=home, model="opus")
    with pytest.raises(Mistake, match=r"is defined in \.podium/agents/lead\.md; delete that file yourself"):
        delete_team(found, repo=tmp_path, home=home)


@pytest.mark.parametrize(
    ("lead", "member", "what"),
    [
        ("advisors: [answer]\n", "", "advisors"),
        ("", "handoff: answer\n", "handoff"),
        ("", "permissions: {deny: [bash]}\n", "permissions"),
    ],
)
def test_settings_that_a_preset_cannot_hold_are_refused_and_not_lost(
    tmp_path: Path, home: Path, lead: str, member: str, what: str
) -> None:
    write_file(tmp_path / ".podium/agents/lead.md", f"---\n{lead}team: {{members: [one]}}\n---\nYou lead.")
    write_file(tmp_path / ".podium/agents/one.md", f"---\n{member}---\nYou work.")
    found = find_team("lead", load_roster(tmp_path, home), repo=tmp_path, home=home)

    with pytest.raises(Mistake, match=f"lead cannot be saved as a preset or a squad: .* has {what}, which only"):
        found.as_preset()


def test_a_team_of_plain_agent_files_is_kept_with_all_its_settings() -> None:
    options = {"termination": "max_rounds", "max_rounds": 2, "routing": "r"}
    team = Team(mode="discuss", members=(Member(agent="one", name="first", model="haiku"),), options=options)
    lead = Agent(name="lead", prompt="Lead.", model="opus", team=team)

    preset = preset_from_agents(lead, (Agent(name="one", prompt="One.", tools=("bash",)),))

    assert preset == Preset(
        name="lead",
        mode="discuss",
        lead_model="opus",
        lead_prompt="Lead.",
        workers=(PresetWorker(name="first", prompt="One.", model="haiku", tools=("bash",)),),
        routing_context="r",
        manner={"termination": "max_rounds", "max_rounds": 2},
    )


def test_saving_an_older_copy_empties_nothing(repo: Path, home: Path) -> None:
    presets.save_preset(
        home, Preset(name="Mission Control", workers=(PresetWorker(name="Flight"),), source=str(repo / ".squad"))
    )

    save_team(
        find_team("user:mission-control", load_roster(repo, home), repo=repo, home=home).as_preset(),
        repo=repo,
        home=home,
    )

    assert "Use async" in (repo / ".squad/decisions.md").read_text()


def test_an_unknown_team_is_a_mistake_that_says_which_exist(tmp_path: Path, home: Path) -> None:
    roster = load_roster(tmp_path, home)

    for name, sentence in (
        ("pr-reviw", 'team "pr-reviw" not found; available: pr-review, '),
        ("answer", "answer is an agent without a team; run podium teams to list the teams"),
        ("triage", "triage is a router and has no members; run podium graph triage to see its routes"),
    ):
        with pytest.raises(Mistake, match=sentence):
            find_team(name, roster, repo=tmp_path, home=home)
