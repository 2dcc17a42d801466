"""The commands that show and check agents, as a person types them."""

import json
import unicodedata
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from podium.cli.commands import agents, check
from podium.cli.commands import agents as graph
from podium.files.discovery import BUILTIN_AGENTS
from podium.values.errors import BadAgent
from podium.values.event import SCHEMA
from podium.values.plain_text import HIDDEN_CATEGORIES, escape_for_terminal

SHIPPED = len(list(BUILTIN_AGENTS.glob("*.md")))


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "repo"
    (folder / ".podium" / "agents").mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    return folder


def write_agent(repo: Path, name: str, frontmatter: str = "", folder: str = ".podium/agents") -> Path:
    path = repo / folder / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\n{frontmatter}\n---\nYou work.\n")
    return path


def run_command(command: click.Command, *words: str | Path) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


def test_a_check_without_diagnostics_says_so(repo: Path) -> None:
    write_agent(repo, "planner")

    result = run_command(check.check_command)

    assert result.exit_code == 0
    assert result.output == f"{SHIPPED + 1} agents: no problems\n"


def test_a_check_prints_all_diagnostics_at_once_and_fails_when_there_are_errors(repo: Path) -> None:
    write_agent(repo, "builder", "handoff: planner\ncolor: blue")
    write_agent(repo, "planner", "handoff: builder")
    write_agent(repo, "tester", "maxTurns: many\ntimeout: soon")

    result = run_command(check.check_command)

    assert result.exit_code == 1
    assert result.output.splitlines() == [
        "error: .podium/agents/builder.md:2: handoff: agents form a cycle: "
        "builder -> planner -> builder; remove one of these references",
        "warning: .podium/agents/builder.md:3: color: this key has no effect in Podium",
        'error: .podium/agents/tester.md:2: maxTurns: expected an integer of at least 1, got the string "many"',
        'error: .podium/agents/tester.md:3: timeout: expected a number above 0, got the string "soon"',
        f"{SHIPPED + 2} agents: 3 errors, 1 warning",
    ]


def test_warnings_alone_do_not_fail_a_check(repo: Path) -> None:
    write_agent(repo, "planner", "colour: blue")

    result = run_command(check.check_command)

    assert result.exit_code == 0
    assert result.output.endswith(f"{SHIPPED + 1} agents: 1 warning\n")


def test_a_check_for_programs_is_json(repo: Path) -> None:
    write_agent(repo, "planner", "timeout: soon")

    result = run_command(check.check_command, "--json")

    assert result.exit_code == 1
    assert json.loads(result.output) == {
        "schema": SCHEMA,
        "agents": SHIPPED,
        "errors": 1,
        "findings": [
            {
                "severity": "error",
                "path": ".podium/agents/planner.md",
                "line": 2,
                "key": "timeout",
                "message": 'expected a number above 0, got the string "soon"',
            }
        ],
    }


@pytest.mark.parametrize(
    ("frontmatter", "found"),
    [
        ("engine: foo", "error: .podium/agents/x.md:2: engine: x uses the engine 'foo', which does not exist"),
        ("model: openia:gpt-5", "error: .podium/agents/x.md:2: model: x uses the model 'openia:gpt-5'"),
        ("tools: [read_file, nonsense]", "warning: .podium/agents/x.md:2: tools: tool 'nonsense' not found"),
        (
            "team:\n  members: [y]\n  adr: true",
            "warning: .podium/agents/x.md:4: team.adr: has no effect in orchestrate mode, only in collaborate",
        ),
        (
            "model: openia:gpt-5\nfallback_models: [openai:gpt-5]",
            "warning: .podium/agents/x.md:2: model: x uses openai:gpt-5: x uses the model 'openia:gpt-5'",
        ),
        (
            "team: {members: [y], fallback_models: openai:gpt-5}\nmodel: openia:x",
            "warning: .podium/agents/x.md:3: model: x uses openai:gpt-5: x uses the model 'openia:x'",
        ),
        ("permissionMode: bypassPermissions", "error: .podium/agents/x.md:2: permissionMode: refused: agent files can"),
        ("permissionMode: often", 'error: .podium/agents/x.md:2: permissionMode: unknown value "often"; expected'),
    ],
)
def test_a_check_reports_what_a_run_refuses_or_leaves_out(
    repo: Path, monkeypatch: pytest.MonkeyPatch, frontmatter: str, found: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a key")
    write_agent(repo, "y")
    write_agent(repo, "x", frontmatter)

    result = run_command(check.check_command)

    assert any(line.startswith(found) for line in result.output.splitlines())
    assert result.exit_code == found.startswith("error")


def test_a_check_warns_of_a_model_that_nobody_knows_and_names_similar_ones(repo: Path) -> None:
    write_agent(repo, "x", "model: openai:gpt-5-minj")

    result = run_command(check.check_command)

    assert result.exit_code == 0
    assert "model: 'gpt-5-minj' is not a known model of openai; similar models: gpt-5-mini," in result.output


def test_a_check_does_not_judge_the_models_of_a_server_at_another_address(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    write_agent(repo, "x", "model: openai:my-own")

    assert "no problems" in run_command(check.check_command).output


def test_another_repository_can_be_checked(repo: Path, tmp_path: Path) -> None:
    write_agent(tmp_path / "other", "planner", "timeout: soon")

    for words in ((tmp_path / "other",), ("--repo", tmp_path / "other")):
        result = run_command(check.check_command, *words)

        assert result.exit_code == 1
        assert result.output.startswith("error: .podium/agents/planner.md:2: timeout: ")


def test_a_check_of_one_file_reports_on_that_file_and_the_agents_it_needs(repo: Path) -> None:
    path = write_agent(repo, "planner", "handoff: builder\nagents: [ghost]")
    write_agent(repo, "builder", "handoff: planner")
    write_agent(repo, "stranger", "timeout: soon")

    result = run_command(check.check_command, path)

    assert result.exit_code == 1
    assert [line.partition(": ")[2].partition(";")[0] for line in result.output.splitlines()] == [
        ".podium/agents/planner.md:2: handoff: agents form a cycle: planner -> builder -> planner",
        '.podium/agents/planner.md:3: agents: agent "ghost" not found',
        "2 errors",
    ]


def test_a_check_of_one_file_reports_a_broken_one_that_it_needs(repo: Path) -> None:
    path = write_agent(repo, "planner", "handoff: builder")
    write_agent(repo, "builder", "timeout: soon")

    result = run_command(check.check_command, path)

    assert result.exit_code == 1
    assert result.output.startswith("error: .podium/agents/builder.md:2: timeout: ")
    assert result.output.endswith("1 agent: 1 error\n")


def test_a_check_of_one_broken_file_reports_its_errors_once(repo: Path) -> None:
    result = run_command(check.check_command, write_agent(repo, "builder", "timeout: soon"))

    assert result.output.count("timeout") == 1
    assert result.output.endswith("0 agents: 1 error\n")


def test_a_folder_that_is_not_in_use_yet_can_be_checked(repo: Path) -> None:
    write_agent(repo, "planner", "handoff: reviewer", folder="drafts")
    write_agent(repo, "reviewer", "handoff: ghost", folder="drafts")

    result = run_command(check.check_command, "drafts")

    assert result.exit_code == 1
    assert result.output.startswith('error: drafts/reviewer.md:2: handoff: agent "ghost" not found; available: ')


def test_foreign_folders_keep_their_conventions_when_they_are_checked_alone(repo: Path) -> None:
    path = write_agent(repo, "planner", "name: Big Planner", folder=".claude/agents")

    assert run_command(check.check_command, path).exit_code == 0
    assert run_command(check.check_command, path.parent).exit_code == 0


def test_a_check_of_nothing_is_a_usage_error(repo: Path) -> None:
    assert run_command(check.check_command, "absent").exit_code == 2


def test_the_list_shows_names_sources_descriptions_and_what_is_hidden(repo: Path, tmp_path: Path) -> None:
    write_agent(repo, "triage", "description: Ours.")
    write_agent(repo, "broken", "timeout: soon")
    write_agent(tmp_path / "home", "mine", "description: My own.", folder="agents")

    result = run_command(agents.agents_command)

    assert result.exit_code == 0
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in result.output.splitlines()}
    assert rows["triage"] == ["repo", "Ours."]
    assert rows["mine"] == ["user", "My own."]
    assert rows["answer"][0] == "built-in"
    assert rows["broken"][0] == "broken"
    assert rows["broken"][1].startswith(".podium/agents/broken.md:2: timeout: ")
    assert rows["builtin:triage"][0] == "built-in"
    assert rows["builtin:triage"][1].startswith("(shadowed) ")


def test_the_list_for_programs_is_json(repo: Path) -> None:
    write_agent(repo, "triage", "description: Ours.")

    found = json.loads(run_command(agents.agents_command, "--json").output)

    assert next(agent for agent in found["agents"] if agent["name"] == "triage") == {
        "name": "triage",
        "source": "repo",
        "description": "Ours.",
        "path": ".podium/agents/triage.md",
    }
    assert [agent["path"] for agent in found["shadowed"]] == ["podium/builtin/agents/triage.md"]
    assert found["broken"] == []


def test_a_graph_is_a_tree_a_flowchart_or_json(repo: Path) -> None:
    write_agent(repo, "planner", "handoff: builder")
    write_agent(repo, "builder")

    text = run_command(graph.graph_command, "planner").output
    flowchart = run_command(graph.graph_command, "planner", "--mermaid").output
    data = json.loads(run_command(graph.graph_command, "planner", "--json").output)

    assert text.splitlines()[:2] == ["planner", "└─ handoff → builder *"]
    assert 'n0 -->|"handoff"| n1' in flowchart
    assert data["terminal"] == ["builder"]
    assert data["agents"][0]["edges"] == [{"kind": "handoff", "label": "handoff", "to": "builder"}]
    assert run_command(graph.graph_command, "planner", "--mermaid", "--json").exit_code == 2


def test_a_graph_of_agents_that_do_not_fit_is_refused_in_one_sentence(repo: Path) -> None:
    write_agent(repo, "planner", "handoff: ghost")

    for name in ("planner", "nobody"):
        result = run_command(graph.graph_command, name)

        assert isinstance(result.exception, BadAgent)
        assert '" not found; available: ' in str(result.exception)


def test_the_graph_in_the_docs_is_the_one_that_is_drawn(repo: Path) -> None:
    docs = (Path(__file__).parents[2] / "docs" / "agents.md").read_text()

    assert f"$ podium graph triage\n{run_command(graph.graph_command, 'triage').output}" in docs


def test_text_of_a_file_is_shown_and_never_controls_the_terminal(repo: Path) -> None:
    evil = '"\\x1b[2J\\u202eevil\\u2028\\x9b1m"'
    write_agent(repo, "planner", f"description: {evil}\nisolation: {evil}\n{evil}: 1")
    write_agent(repo, "builder", f"description: {evil}\ncolor: {evil}")

    for command in (check.check_command, agents.agents_command):
        for words in ((), ("--json",)):
            output = run_command(command, *words).output

            assert "evil" in output
            assert {unicodedata.category(character) for character in output if character != "\n"}.isdisjoint(
                HIDDEN_CATEGORIES
            )


def test_control_and_hidden_characters_are_escaped_and_the_rest_stays() -> None:
    assert escape_for_terminal("plain, größer, 日本\n\tnext") == "plain, größer, 日本\n\tnext"
    assert escape_for_terminal("\x1b[31m\r\x9b\u202e\u200b\u2028\ue000\U000e0041\ud800") == (
        "\\x1b[31m\\x0d\\x9b\\u202e\\u200b\\u2028\\ue000\\U000e0041\\ud800"
    )


@given(st.text(st.characters()))
def test_no_text_keeps_a_hidden_character(text: str) -> None:
    assert all(
        character in "\n\t" or unicodedata.category(character) not in HIDDEN_CATEGORIES
        for character in escape_for_terminal(text)
    )
