"""Finding agents: which folders are searched, which definition wins, and how one bad file affects the others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from podium.files.discovery import Roster, load_roster
from podium.system.locations import find_home_folder, find_repo, format_path
from podium.values.agent import Agent
from podium.values.errors import BadAgent, filter_errors

TEAMS = {"broadcast-compare", "debate", "implement-and-challenge", "plan-build-review", "pr-review", "triage"}
MEMBERS = {"advocate", "answer", "challenger", "change-planner", "change-reviewer", "correctness-reviewer"} | {
    "implementer",
    "investigate",
    "maintenance-reviewer",
    "opponent",
    "sceptic",
    "security-reviewer",
    "worker",
}
BUILT_IN = TEAMS | MEMBERS


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / "repo").mkdir()
    return tmp_path / "repo"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def write_agent(path: Path, frontmatter: str = "", body: str = "You work.") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\n{frontmatter}\n---\n{body}\n")
    return path


def own_names(roster: Roster) -> set[str]:
    return set(roster.agents) - BUILT_IN


def test_built_in_agents_are_loaded_and_fit_together(repo: Path, home: Path) -> None:
    roster = load_roster(repo, home)

    assert set(roster.agents) == BUILT_IN
    assert roster.diagnostics == ()
    assert roster.check() == ()
    assert {agent.source for agent in roster.agents.values()} == {"built-in"}


def test_agents_come_from_every_place(repo: Path, home: Path) -> None:
    write_agent(home / "agents" / "mine.md")
    write_agent(repo / ".claude" / "agents" / "claude.md")
    write_agent(repo / ".github" / "agents" / "hub.agent.md")
    write_agent(repo / ".github" / "agents" / "no-agent.md")
    write_agent(repo / ".podium" / "agents" / "ours.md")

    roster = load_roster(repo, home)

    assert own_names(roster) == {"mine", "claude", "hub", "ours"}
    assert [roster.get(name).source for name in ("mine", "claude", "hub", "ours")] == ["user", "repo", "repo", "repo"]
    assert roster.get("hub").path == ".github/agents/hub.agent.md"


def test_without_a_repository_there_are_the_other_places(home: Path) -> None:
    write_agent(home / "agents" / "mine.md")

    assert own_names(load_roster(None, home)) == {"mine"}


def test_later_places_win_by_name_and_the_others_stay_reachable(repo: Path, home: Path) -> None:
    write_agent(home / "agents" / "triage.md", "description: Mine.")
    write_agent(repo / ".claude" / "agents" / "x.md", "name: triage\ndescription: Claude's.")
    write_agent(repo / ".podium" / "agents" / "triage.md", "description: Ours.")

    roster = load_roster(repo, home)

    assert roster.get("triage").description == "Ours."
    assert roster.get("repo:triage").description == "Ours."
    assert roster.get("user:triage").description == "Mine."
    assert roster.get("builtin:triage").source == "built-in"
    assert [agent.source for agent in roster.shadowed] == ["built-in", "user", "repo"]


def test_an_agent_may_use_the_one_that_it_hides(repo: Path, home: Path) -> None:
    write_agent(repo / ".podium" / "agents" / "answer.md", "handoff: builtin:answer")

    team = load_roster(repo, home).resolve_team("answer")

    assert [agent.name for agent in team] == ["answer", "builtin:answer"]


def test_a_broken_file_stops_neither_the_others_nor_itself_from_hiding(repo: Path, home: Path) -> None:
    write_agent(repo / ".podium" / "agents" / "triage.md", "maxTurns: many")
    write_agent(repo / ".podium" / "agents" / "other.md")

    roster = load_roster(repo, home)

    assert roster.get("other").name == "other"
    assert "triage" not in roster.agents
    assert [diagnostic.key for diagnostic in roster.broken["triage"]] == ["maxTurns"]
    assert roster.get("builtin:triage").source == "built-in"
    with pytest.raises(
        BadAgent,
        match=r"^\.podium/agents/triage\.md:2: maxTurns: expected an integer of at least 1, got the string \"many\"",
    ):
        roster.get("triage")
    with pytest.raises(BadAgent, match="maxTurns"):
        roster.get("repo:triage")


def test_a_broken_file_is_known_by_the_name_that_it_gives(repo: Path, home: Path) -> None:
    write_agent(repo / ".podium" / "agents" / "file.md", "name: planner\nmaxTurns: many")

    assert set(load_roster(repo, home).broken) == {"planner"}


def test_a_name_that_two_files_of_a_folder_have_is_an_error_that_names_both(repo: Path, home: Path) -> None:
    write_agent(repo / ".podium" / "agents" / "a.md", "name: planner")
    write_agent(repo / ".podium" / "agents" / "b.md", "\nname: planner")

    roster = load_roster(repo, home)

    message = (
        ".podium/agents/b.md:3: name: planner is already the name of the agent in .podium/agents/a.md; "
        "choose another name"
    )
    assert [str(diagnostic) for diagnostic in roster.diagnostics] == [message]
    with pytest.raises(BadAgent, match="planner is already the name of"):
        roster.get("planner")


def test_foreign_files_without_frontmatter_are_skipped_and_ours_are_not(repo: Path, home: Path) -> None:
    for folder in (".claude", ".podium"):
        (repo / folder / "agents").mkdir(parents=True)
        (repo / folder / "agents" / "README.md").write_text("# Read me\n")

    roster = load_roster(repo, home)

    assert [(diagnostic.severity, diagnostic.path) for diagnostic in roster.diagnostics] == [
        ("notice", ".claude/agents/README.md"),
        ("error", ".podium/agents/README.md"),
    ]


def test_hidden_files_are_skipped(repo: Path, home: Path) -> None:
    write_agent(repo / ".podium" / "agents" / ".draft.md", "maxTurns: many")

    assert load_roster(repo, home).diagnostics == ()


def test_links_inside_the_repository_are_followed_and_those_out_of_it_are_not(repo: Path, home: Path) -> None:
    write_agent(repo / "shared" / "one.md")
    write_agent(repo.parent / "secret.md", "description: secret")
    folder = repo / ".podium" / "agents"
    folder.mkdir(parents=True)
    (folder / "inside.md").symlink_to("../../shared/one.md")
    (folder / "outside.md").symlink_to(repo.parent / "secret.md")

    roster = load_roster(repo, home)

    assert own_names(roster) == {"inside"}
    assert [diagnostic.path for diagnostic in roster.diagnostics] == [".podium/agents/outside.md"]


@pytest.mark.parametrize("place", [".podium", ".podium/agents"])
def test_a_folder_that_leads_out_of_the_repository_is_not_read(repo: Path, home: Path, place: str) -> None:
    write_agent(repo.parent / "elsewhere" / "agents" / "planner.md")
    write_agent(repo.parent / "elsewhere" / "planner.md")
    (repo / place).parent.mkdir(exist_ok=True)
    (repo / place).symlink_to(repo.parent / "elsewhere")

    roster = load_roster(repo, home)

    assert own_names(roster) == set()
    assert [diagnostic.path for diagnostic in roster.diagnostics] == [".podium/agents"]


def test_a_folder_that_is_a_loop_of_links_is_an_error(repo: Path, home: Path) -> None:
    (repo / ".podium").mkdir()
    (repo / ".podium" / "agents").symlink_to("agents")

    [diagnostic] = load_roster(repo, home).diagnostics

    assert diagnostic.path == ".podium/agents"


def test_a_file_where_the_folder_should_be_is_an_error(repo: Path, home: Path) -> None:
    (repo / ".podium").mkdir()
    (repo / ".podium" / "agents").write_text("")

    [diagnostic] = load_roster(repo, home).diagnostics

    assert str(diagnostic) == ".podium/agents: cannot list this folder: Not a directory"


def test_the_person_s_own_files_may_be_links(repo: Path, home: Path) -> None:
    write_agent(repo.parent / "dotfiles" / "mine.md")
    (home / "agents").mkdir(parents=True)
    (home / "agents" / "mine.md").symlink_to(repo.parent / "dotfiles" / "mine.md")

    assert own_names(load_roster(repo, home)) == {"mine"}


def test_the_person_s_own_folder_is_not_also_a_repository_s(tmp_path: Path) -> None:
    write_agent(tmp_path / ".podium" / "agents" / "mine.md")

    roster = load_roster(tmp_path, tmp_path / ".podium")

    assert roster.get("mine").source == "user"
    assert roster.shadowed == ()


def test_an_unknown_name_is_answered_with_the_known_ones_nearest_first(repo: Path, home: Path) -> None:
    for name in ("builder", "reviewer", "planner-1", "planner-2", "planner-3"):
        write_agent(repo / ".podium" / "agents" / f"{name}.md")

    with pytest.raises(BadAgent) as caught:
        load_roster(repo, home).get("planer-2")

    assert str(caught.value).startswith('agent "planer-2" not found; available: planner-2, planner-1, planner-3, ')
    assert str(caught.value).endswith(f" and {len(BUILT_IN) + 5 - 8} more")


def test_an_agent_is_found_by_its_display_name_and_by_any_spelling_of_it(repo: Path, home: Path) -> None:
    write_agent(repo / ".claude/agents/one.md", "name: Code Reviewer")
    write_agent(repo / ".podium/agents/tester.md")
    write_agent(home / "agents/tester.md", "description: Mine.")

    roster = load_roster(repo, home)

    for name in ("Code Reviewer", "code reviewer", "code-reviewer", "CODE_REVIEWER", "repo:Code Reviewer"):
        assert roster.get(name).display_name == "Code Reviewer"
    assert [agent.name for agent in roster.resolve_team("Code Reviewer")] == ["code-reviewer"]
    assert roster.resolve_team("user:Tester")[0].description == "Mine."
    with pytest.raises(BadAgent, match='agent "Code" not found'):
        roster.get("Code")


def test_an_ambiguous_display_name_is_an_error_with_the_names_that_it_matches() -> None:
    def make_named_agent(name: str, display_name: str = "") -> dict[str, Agent]:
        return {name: Agent(name=name, display_name=display_name)}

    one, two, plain = make_named_agent("crew-qa", "QA"), make_named_agent("team-qa", "QA"), make_named_agent("qa", "")

    with pytest.raises(BadAgent, match='"QA" is ambiguous: it matches crew-qa and team-qa; use one of these names'):
        Roster(agents={**one, **two, **plain}).resolve_team("QA")
    assert Roster(agents={**one, **plain}).get("QA").name == "crew-qa"
    assert Roster(agents={**one, **two, **plain}).get("qa").name == "qa"
    assert Roster(agents={**one, **two, **make_named_agent("qa", "QA")}).get("QA").name == "qa"


def test_a_broken_file_is_found_however_its_name_is_written(repo: Path, home: Path) -> None:
    write_agent(repo / ".podium/agents/builder.md", "handoff: [a, b]")

    with pytest.raises(BadAgent, match="got a list"):
        load_roster(repo, home).get("Builder")


def test_a_team_is_the_agent_first_and_then_everyone_it_needs(repo: Path, home: Path) -> None:
    folder = repo / ".podium" / "agents"
    write_agent(folder / "lead.md", "advisors: [doubter]\nagents: [helper]\nhandoff: reporter")
    write_agent(folder / "helper.md", "tools: Read, Agent(scout)")
    for name in ("doubter", "reporter", "scout", "stranger"):
        write_agent(folder / f"{name}.md")

    team = load_roster(repo, home).resolve_team("lead")

    assert [agent.name for agent in team] == ["lead", "doubter", "helper", "reporter", "scout"]


def test_a_team_that_does_not_fit_is_refused_with_the_first_error_and_the_number_of_others(
    repo: Path, home: Path
) -> None:
    write_agent(repo / ".podium" / "agents" / "lead.md", "description: Leads.\nhandoff: tester\nrouter: true")
    write_agent(repo / ".podium" / "agents" / "stranger.md", "handoff: nobody")

    with pytest.raises(BadAgent) as caught:
        load_roster(repo, home).resolve_team("lead")

    start = '.podium/agents/lead.md:3: handoff: agent "tester" not found; available: '
    assert str(caught.value).startswith(start)
    assert str(caught.value).endswith(" (and 1 more; run podium check to see all)")


def test_a_team_that_needs_a_broken_file_is_refused_with_that_file_s_error(repo: Path, home: Path) -> None:
    write_agent(repo / ".podium" / "agents" / "lead.md", "handoff: tester")
    write_agent(repo / ".podium" / "agents" / "tester.md", "timeout: soon")

    with pytest.raises(
        BadAgent, match=r"^\.podium/agents/tester\.md:2: timeout: expected a number above 0, got the string \"soon\""
    ):
        load_roster(repo, home).resolve_team("lead")


def test_agents_built_in_code_win_over_files(repo: Path, home: Path) -> None:
    write_agent(repo / ".podium" / "agents" / "lead.md", "handoff: tester")
    write_agent(repo / ".podium" / "agents" / "tester.md", "timeout: soon")

    team = load_roster(repo, home).resolve_team("lead", extra=[Agent(name="tester", prompt="You test.")])

    assert [(agent.name, agent.source) for agent in team] == [("lead", "repo"), ("tester", "code")]


def test_an_agent_built_in_code_may_be_the_one_that_is_asked_for(repo: Path, home: Path) -> None:
    lead = Agent(name="lead", handoff="nobody")

    with pytest.raises(BadAgent, match=r'^agent lead: handoff: agent "nobody" not found; available: '):
        load_roster(repo, home).resolve_team("lead", extra=[lead])


def test_a_check_of_everything_reports_the_line_of_each_reference(repo: Path, home: Path) -> None:
    write_agent(
        repo / ".podium" / "agents" / "lead.md", "team:\n  mode: reflect\n  members: [ghost]\n  evaluator: lead"
    )

    found = filter_errors(load_roster(repo, home).check())

    assert [(diagnostic.line, diagnostic.key) for diagnostic in found] == [(4, "team.members"), (5, "team.evaluator")]


@pytest.mark.parametrize("mark", [".podium", ".git"])
def test_the_repository_is_the_nearest_parent_folder_with_a_marker(tmp_path: Path, mark: str) -> None:
    inner = tmp_path / "repo" / "src" / "deep"
    inner.mkdir(parents=True)
    (tmp_path / "repo" / mark).mkdir()

    assert find_repo(inner, home=tmp_path / ".podium") == tmp_path / "repo"


def test_the_person_s_own_folder_marks_no_repository(tmp_path: Path) -> None:
    inner = tmp_path / "projects" / "new"
    inner.mkdir(parents=True)
    (tmp_path / ".podium").mkdir()

    assert find_repo(inner, home=tmp_path / ".podium") == inner


def test_the_person_s_own_folder_may_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_HOME", "/somewhere")
    assert find_home_folder() == Path("/somewhere")

    monkeypatch.setenv("PODIUM_HOME", "")
    assert find_home_folder() == Path.home() / ".podium"


def test_the_person_s_own_folder_is_the_same_from_every_working_folder() -> None:
    environ = {"PODIUM_HOME": "somewhere"}

    assert find_home_folder(environ) == Path.cwd() / "somewhere"
    assert find_home_folder(environ, "elsewhere") == Path.cwd() / "elsewhere"


def test_paths_are_shown_from_the_repository_or_the_home_folder_where_they_are_inside() -> None:
    assert format_path(Path("/srv/repo/a/b.md"), repo=Path("/srv/repo")) == "a/b.md"
    assert format_path(Path.home() / ".podium" / "b.md", repo=Path("/srv/repo")) == "~/.podium/b.md"
    assert format_path(Path("/elsewhere/b.md"), repo=Path("/srv/repo")) == "/elsewhere/b.md"


def test_loading_agents_imports_nothing_heavy() -> None:
    heavy = ["asyncio", "anyio", "aiohttp", "rich"]
    code = f"import sys, podium.files.discovery; print([name for name in {heavy} if name in sys.modules])"

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )

    assert done.stdout.strip() == "[]"
