"""Reading an agent file: every valid form, and one clear sentence for every invalid one."""

import os
import re
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.files.agent_file import FIRST_LINE, AgentFile, parse_agent_file, read_agent_file
from podium.files.agent_keys import AGENT_KEYS, FOREIGN_KEYS
from podium.files.agent_keys import KEYS as FILE_KEYS
from podium.files.team_keys import TEAM_KEYS, describe_idle_key
from podium.policy.rule_entry import KINDS
from podium.values.agent import Advisors, Agent, Budget, Member, Permissions, Router, Team
from podium.values.errors import Diagnostic
from podium.values.field_reader import to_camel_case
from podium.values.hook_keys import HOOK_KEYS
from podium.values.located_yaml import MalformedText
from podium.values.team_modes import MODES
from podium.values.yaml_parser import parse_yaml_mapping

DOCS = Path(__file__).parents[2] / "docs" / "agents.md"


def parse_file(frontmatter: str, body: str = "You plan.", *, foreign: bool = False, stem: str = "planner") -> AgentFile:
    data = f"---\n{frontmatter}\n---\n{body}\n".encode()
    return parse_agent_file(data, path=Path(f"/repo/{stem}.md"), source="repo", foreign=foreign)


def parse_agent(frontmatter: str, body: str = "You plan.", **options: Any) -> Agent:
    found = parse_file(frontmatter, body, **options)
    assert found.agent is not None, found.diagnostics
    return found.agent


def get_error(found: AgentFile) -> Diagnostic:
    assert found.agent is None
    [only] = [diagnostic for diagnostic in found.diagnostics if diagnostic.severity == "error"]
    assert "\n" not in str(only)
    return only


def get_warnings(found: AgentFile) -> list[str]:
    assert found.agent is not None, found.diagnostics
    return [f"{diagnostic.key}: {diagnostic.message}" for diagnostic in found.diagnostics]


def test_a_file_with_empty_frontmatter_is_an_agent_named_after_the_file() -> None:
    found = parse_agent("", "# Planner\n\nYou plan\nreleases. Then you rest.")

    assert found.name == "planner"
    assert found.description == "You plan releases."
    assert found.prompt == "# Planner\n\nYou plan\nreleases. Then you rest."
    assert found.source == "repo"


@pytest.mark.parametrize("advisors", ["[a, b]", "a, b", "{agents: [a, b]}"])
def test_advisors_need_not_succeed_unless_the_file_says_so(advisors: str) -> None:
    assert parse_agent(f"advisors: {advisors}").advisors == Advisors(agents=("a", "b"), require="none")


def test_every_key_of_the_table_is_read() -> None:
    found = parse_agent(
        """
name: lead
description: >
  Plans a change,
  and reports.
model: anthropic:claude-sonnet-4-5
engine: scripted
tools: Read, Bash(git log, git diff), Agent(scout, guide)
disallowedTools: [Write]
role: planner
capabilities: [planning, review]
permissions: {deny: [Bash(rm *)], ask: [Edit]}
agents: [helper]
handoff: reporter
advisors: {agents: [security, operations], require: all, timeout: 30}
input: markdown
output: {type: object, required: [plan], properties: {plan: {type: string}}}
maxTurns: 7
timeout: 1.5
budget: {usd: 2, tokens: 1_000, seconds: 60, turns: 3, files_changed: 0}
isolation: worktree
skills: [pdf, forms]
"""
    )

    assert found == Agent(
        name="lead",
        description="Plans a change, and reports.",
        prompt="You plan.",
        model="anthropic:claude-sonnet-4-5",
        engine="scripted",
        tools=("Read", "Bash(git log, git diff)", "Agent(scout)", "Agent(guide)"),
        disallowed_tools=("Write",),
        role="planner",
        capabilities=("planning", "review"),
        permissions=Permissions(deny=("Bash(rm *)",), ask=("Edit",)),
        agents=("helper",),
        handoff="reporter",
        advisors=Advisors(agents=("security", "operations"), require="all", timeout=30),
        input="markdown",
        output={"type": "object", "required": ["plan"], "properties": {"plan": {"type": "string"}}},
        max_turns=7,
        timeout=1.5,
        budget=Budget(usd=2, tokens=1000, seconds=60, turns=3, files_changed=0),
        isolation="worktree",
        skills=("pdf", "forms"),
        source="repo",
        path="/repo/planner.md",
    )


def test_keys_are_read_in_snake_case_and_in_camel_case() -> None:
    assert parse_agent("max_turns: 3\ndisallowed_tools: [Write]") == parse_agent("maxTurns: 3\ndisallowedTools: Write")


def test_a_key_without_a_value_is_treated_as_absent() -> None:
    assert parse_agent("handoff:\ntools: ~\nteam: null") == parse_agent("")


def test_a_router_may_take_its_agents_as_destinations() -> None:
    found = parse_agent("router: true\nagents: [billing, technical]")

    assert found.destinations == ("billing", "technical")


def test_a_router_may_list_its_destinations() -> None:
    found = parse_agent("router: {destinations: [billing], fallback: person, maxTurns: 2}")

    assert found.router == Router(destinations=("billing",), fallback="person", max_turns=2)


def test_consult_is_read_as_advisors_with_a_warning() -> None:
    found = parse_file("consult: [security]")

    assert found.agent is not None
    assert found.agent.advisors == Advisors(agents=("security",), require="none")
    assert get_warnings(found) == ["consult: consult is an alias of advisors; use advisors"]


def test_a_team_is_read_with_its_members_and_its_mode_s_own_keys() -> None:
    found = parse_agent(
        """
team:
  mode: reflect
  members:
    - builder
    - {agent: builder, name: challenger, role: finds faults, capabilities: review, model: opus, prompt: Doubt.}
  evaluator: judge
  maxIterations: 6
  checks: [make test, "make lint, quickly"]
  participation: all
  worker_timeout: 90
  worktrees: each
  adr: yes
  prompts: {plan: Plan it.}
"""
    )

    assert found.team == Team(
        mode="reflect",
        members=(
            Member(agent="builder"),
            Member(
                agent="builder",
                name="challenger",
                role="finds faults",
                capabilities=("review",),
                model="opus",
                prompt="Doubt.",
            ),
        ),
        evaluator="judge",
        options={
            "max_iterations": 6,
            "checks": ["make test", "make lint, quickly"],
            "participation": "all",
            "worker_timeout": 90.0,
            "worktrees": "each",
            "adr": True,
            "prompts": {"plan": "Plan it."},
        },
    )


@pytest.mark.parametrize(
    ("written", "mode"),
    [
        ("mode: orchestrator", "orchestrate"),
        ("mode: orchestrator-reflect", "reflect"),
        ("mode: collaborate", "collaborate"),
        ("termination: consensus", "discuss"),
        ("maxRounds: 3", "discuss"),
        ("evaluator: judge", "orchestrate"),
    ],
)
def test_a_team_has_the_mode_that_it_names_or_that_its_keys_imply(written: str, mode: str) -> None:
    found = parse_agent(f"team:\n  members: [a]\n  {written}")

    assert found.team is not None
    assert found.team.mode == mode


@pytest.mark.parametrize(
    ("written", "warning"),
    [
        ("mode: broadcast\n  max_concurrent: 2", None),
        ("mode: reflect\n  max_iterations: 2\n  evaluator: a\n  checks: make", None),
        ("mode: sequential\n  max_concurrent: 2", "has no effect in sequential mode, only in"),
        (
            "mode: orchestrate\n  evaluator: judge",
            "has no effect in orchestrate mode, only in broadcast and reflect",
        ),
        ("mode: broadcast\n  checks: make", "has no effect in broadcast mode without choose"),
        ("mode: broadcast\n  checks: make\n  evaluator: a\n  choose: judge", None),
        ("mode: discuss\n  dispatch: force", "has no effect in discuss mode, only in orchestrate and reflect"),
        ("mode: reflect\n  adr: true", "has no effect in reflect mode, only in collaborate"),
        ("mode: collaborate\n  adr: true\n  vote: unanimous\n  constraints: no network", None),
    ],
)
def test_a_key_of_a_team_that_has_no_effect_in_its_mode_is_warned_about(written: str, warning: str | None) -> None:
    warnings = get_warnings(parse_file(f"team:\n  members: [a]\n  {written}"))

    assert len(warnings) == (warning is not None)
    assert warning is None or warning in warnings[0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("key", TEAM_KEYS)
def test_each_key_of_a_team_is_an_option_of_its_mode_or_warned_about(key: str, mode: str) -> None:
    is_read_by_mode = key in (*MODES[mode].__struct_fields__, "mode", "members")

    assert bool(describe_idle_key(key, mode, TEAM_KEYS)) != is_read_by_mode


@pytest.mark.parametrize("spelled", ["termination: coordinator_decides", "terminationMode: coordinatorDecides"])
def test_the_end_of_a_discussion_is_understood_in_both_spellings(spelled: str) -> None:
    found = parse_agent(f"team:\n  members: [a]\n  {spelled}")

    assert found.team is not None
    assert found.team.options == {"termination": "coordinator_decides"}


def test_keys_of_other_programs_are_kept_and_warned_about() -> None:
    found = parse_file("effort: high\nmcpServers: {db: {command: run, when: 2024-01-01}}\ncolor: blue")

    assert found.agent is not None
    assert found.agent.other == {
        "effort": "high",
        "mcpServers": {"db": {"command": "run", "when": "2024-01-01"}},
        "color": "blue",
    }
    assert get_warnings(found) == [
        f"{key}: this key has no effect in Podium" for key in ("effort", "mcpServers", "color")
    ]


def test_an_unknown_key_is_a_warning_with_the_nearest_known_key() -> None:
    found = parse_file("handof: reporter\nteam: {members: [a], evaluater: b}")

    assert [(text.partition(": ")[0], text.rpartition(" ")[2]) for text in get_warnings(found)] == [
        ("handof", "handoff"),
        ("team.evaluater", "evaluator"),
    ]


def test_a_name_that_is_listed_twice_counts_once_with_a_warning() -> None:
    found = parse_file("agents: [a, b, a]")

    assert found.agent is not None
    assert found.agent.agents == ("a", "b")
    assert get_warnings(found) == ['agents: "a" is listed more than once; list it once']


def test_diagnostics_beyond_the_limit_are_cut_short_and_an_error_is_still_among_them() -> None:
    found = parse_file("\n".join(f"key-{number}: 1" for number in range(50_000)) + "\nmaxTurns: many")

    assert [diagnostic.severity for diagnostic in found.diagnostics] == ["warning"] * 100 + ["error"]
    assert get_error(found).key == "maxTurns"


def test_carriage_returns_and_a_byte_order_mark_are_normal() -> None:
    data = "\ufeff---\r\nname: planner\r\nhandoff: builder\r\n---\r\nYou plan.\r\nWell.\r\n".encode()

    found = parse_agent_file(data, path=Path("/repo/x.md"), source="repo")

    assert found.diagnostics == ()
    assert found.agent is not None
    assert found.agent.handoff == "builder"
    assert found.agent.prompt == "You plan.\nWell."


def test_a_foreign_name_becomes_the_display_name() -> None:
    found = parse_agent("name: Code Reviewer!\nhandoff: Release Lead\ntools: Agent(Some One)", foreign=True)

    assert (found.name, found.display_name) == ("code-reviewer", "Code Reviewer!")
    assert (found.handoff, found.tools) == ("release-lead", ("Agent(some-one)",))


def test_a_foreign_file_without_frontmatter_is_skipped_with_a_notice() -> None:
    found = parse_agent_file(b"# Read me\n", path=Path("/repo/README.md"), source="repo", foreign=True)

    assert found.agent is None
    assert not found.is_broken
    assert [str(diagnostic) for diagnostic in found.diagnostics] == [
        "/repo/README.md: no frontmatter; the first line must be ---"
    ]


def test_all_errors_of_a_file_are_reported_at_once_in_the_order_of_its_lines() -> None:
    found = parse_file("maxTurns: many\nisolation: docker\nbudget: {usd: -1}")

    assert [str(diagnostic) for diagnostic in found.diagnostics] == [
        '/repo/planner.md:2: maxTurns: expected an integer of at least 1, got the string "many"',
        '/repo/planner.md:3: isolation: unknown value "docker"; expected shared, worktree or process',
        "/repo/planner.md:4: budget.usd: expected a number above 0, got the number -1",
    ]


@pytest.mark.parametrize(
    ("frontmatter", "line", "key", "message"),
    [
        ("name: Planner", 2, "name", 'invalid agent name "Planner"; use planner'),
        ("name: -rf", 2, "name", 'invalid agent name "-rf"; use rf'),
        (
            "name: 7",
            2,
            "name",
            "expected a name (in quotes if it looks like a number, a date or a boolean), got the number 7",
        ),
        (
            "name: ''",
            2,
            "name",
            'expected a name (in quotes if it looks like a number, a date or a boolean), got the string ""',
        ),
        (f"name: {'a' * 65}", 2, "name", "invalid agent name"),
        ("description: 2024-01-01", 2, "description", "expected a string, got the date 2024-01-01"),
        ("description: no", 2, "description", "expected a string, got the boolean no"),
        ("\nmodel: [a]", 3, "model", "expected a string, got a list"),
        ("tools: {a: b}", 2, "tools", "expected a list of strings, got a mapping"),
        ("tools: [Agent(a, b)]", 2, "tools", '"Agent(a" has an unmatched parenthesis'),
        ("capabilities: 5", 2, "capabilities", "expected a list of strings, got the number 5"),
        (
            "permissions: [Read]",
            2,
            "permissions",
            "expected a mapping with keys such as allow, ask or deny, got a list",
        ),
        ("agents: {a: b}", 2, "agents", "expected a list of agent names, got a mapping"),
        ("handoff: [a, b]", 2, "handoff", "expected the name of one agent, got a list"),
        ("handoff: a, b", 2, "handoff", "expected the name of one agent, got a list"),
        ("handoff: {a: b, c: d}", 2, "handoff", "expected the name of one agent, got a mapping"),
        ("handoff: ''", 2, "handoff", 'expected the name of one agent, got the string ""'),
        ("router: 7", 2, "router", "expected true or a mapping with destinations, got the number 7"),
        ("router: [a]", 2, "router", "expected true or a mapping with destinations, got a list"),
        (
            "router: {destinations: [a], max_turns: 0}",
            2,
            "router.max_turns",
            "expected an integer of at least 1, got the number 0",
        ),
        (
            "agents: [a]\nrouter: {destinations: [b]}",
            3,
            "router",
            "destinations are listed here and under agents on line 2",
        ),
        ("advisors: {require: all}", 2, "advisors", "no advisors are listed; add agents: [NAME]"),
        (
            "advisors: {agents: [a], require: some}",
            2,
            "advisors.require",
            'expected all, any, none or a number, got the string "some"',
        ),
        ("advisors: {agents: [a], require: 2}", 2, "advisors.require", "requires 2 of 1 advisors to succeed"),
        ("advisors: [a]\nconsult: [b]", 3, "consult", "same key as advisors on line 2"),
        ("max_turns: 3\nmaxTurns: 4", 3, "maxTurns", "same key as max_turns on line 2"),
        ("team: [a, b]", 2, "team", "expected a mapping with keys such as mode, members or evaluator, got a list"),
        ("team: {mode: chaos, members: [a]}", 2, "team.mode", 'unknown value "chaos"; expected broadcast, sequential'),
        ("team: {members: {a: b}}", 2, "team.members", "expected a list of agents, got a mapping"),
        ("team:\n  members:\n    - {role: x}", 4, "team.members", "this member has no agent; add agent: NAME"),
        ("team:\n  members: [a]\n  adr: maybe", 4, "team.adr", 'expected true or false, got the string "maybe"'),
        (
            "team: {members: [a], prompts: x}",
            2,
            "team.prompts",
            'expected a mapping of names to strings, got the string "x"',
        ),
        ("input: xml", 2, "input", 'unknown value "xml"; expected text, markdown, a JSON schema or a .json file'),
        ("output: {type: thing}", 2, "output", 'unknown JSON schema type "thing"'),
        ("maxTurns: 1.5", 2, "maxTurns", "expected an integer of at least 1, got the number 1.5"),
        ("timeout: 1:30", 2, "timeout", 'expected a number above 0, got the string "1:30"'),
        ("timeout: yes", 2, "timeout", "expected a number above 0, got the boolean yes"),
        ("budget: 5", 2, "budget", "expected a mapping with keys such as usd, tokens or seconds, got the number 5"),
    ],
)
def test_a_wrong_value_is_an_error_that_says_what_was_given_and_what_would_be_right(
    frontmatter: str, line: int, key: str, message: str
) -> None:
    found = get_error(parse_file(frontmatter))

    assert (found.line, found.key) == (line, key)
    assert message in found.message


@pytest.mark.parametrize(
    ("frontmatter", "line", "message"),
    [
        ("permissions: {deny: [Bash(]}", 2, 'the rule "Bash(" cannot be used: expected Tool or Tool(specifier)'),
        (
            "permissions:\n  deny:\n    - Read\n    - {rule: Bash(rm *), match: [rm -rf x, cp a b]}",
            5,
            'the rule "Bash(rm *)" under deny does not cover its example "cp a b"; change one or the other',
        ),
        (
            "permissions:\n  deny:\n    - {rule: Read(*.pem), not_match: [a.pem]}",
            4,
            'the rule "Read(*.pem)" under deny covers its example "a.pem"; change one or the other',
        ),
        ("permissions: {deny: {rule: Read}}", 2, "expected a list of rules, got a mapping"),
        ("permissions: {deny: [{match: x}]}", 2, "a rule is a string, or a mapping with rule, match and not_match"),
    ],
)
def test_an_invalid_rule_or_a_failing_example_is_an_error_at_its_line(
    frontmatter: str, line: int, message: str
) -> None:
    found = get_error(parse_file(frontmatter))

    assert (found.line, found.key) == (line, "permissions.deny")
    assert message in found.message


def test_rules_with_examples_are_kept_as_texts_and_found_by_their_lines() -> None:
    found = parse_file("permissions:\n  ask: Edit\n  deny:\n    - {rule: Bash(rm *), match: [rm -rf x], not_match: ls}")

    assert found.agent is not None
    assert found.agent.permissions == Permissions(ask=("Edit",), deny=("Bash(rm *)",))
    assert found.lines["permissions.deny.Bash(rm *)"] == 5


@pytest.mark.parametrize("foreign", [False, True])
def test_allow_rules_of_an_agent_file_are_ignored_with_a_warning(foreign: bool) -> None:
    found = parse_file("permissions: {allow: [Bash], deny: [Read]}", foreign=foreign)

    assert get_warnings(found) == ["permissions.allow: ignored: agent files can only tighten permissions"]


@pytest.mark.parametrize(
    ("frontmatter", "line", "key", "message"),
    [
        ("description: Plans: well", 2, "description", "text that contains a colon needs quotes"),
        ("description: @planner", 2, "description", "text that starts with this character needs quotes"),
        ("agents:\n\t- a", 3, "", "use spaces instead of tabs"),
        ("agents: [a", 3, "", "this is not valid YAML"),
        ("name: a\nname: b", 3, "name", "duplicate key, also on line 2; keep only one"),
        ("team:\n  mode: reflect\n  mode: discuss", 4, "team.mode", "duplicate key, also on line 3"),
        ("agents: &all [a]", 2, "agents", '"&all" is a YAML alias or anchor'),
        ("agents: [a]\nadvisors: *all", 3, "advisors", '"*all" is a YAML alias or anchor'),
        ("description: !!python/object/apply:os.system [ls]", 2, "description", '"!!python/object/apply:os.system"'),
        ("description: !secret x", 2, "description", '"!secret" is a YAML tag'),
        (f"maxTurns: {'9' * 5000}", 2, "maxTurns", " is too large; use at most"),
        ("timeout: 1e999", 2, "timeout", "the number 1e999 is too large"),
        (f"hooks: {'[' * 100_000}", 2, "hooks", "is nested more than 40 levels deep"),
        (f"hooks: {'{a: ' * 100_000}", 2, "hooks.", "is nested more than 40 levels deep"),
        ("- a\n- b", 2, "", "expected a mapping with entries such as KEY: VALUE, got a list"),
        ("just words", 2, "", 'expected a mapping with entries such as KEY: VALUE, got the string "just words"'),
        ("[a, b]: c", 2, "", "got a list or mapping as a key"),
        ('description: "a\\0b"', 2, "description", "contains the character U+0000"),
        ("role: \x07", 2, "", "contains U+0007, which YAML does not allow"),
        ("name: a\n--- b", 3, "", "a second YAML document starts here"),
    ],
)
def test_unreadable_frontmatter_is_one_error_at_its_line(frontmatter: str, line: int, key: str, message: str) -> None:
    found = get_error(parse_file(frontmatter))

    assert found.line == line
    assert found.key.startswith(key)
    assert message in found.message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", ": no frontmatter; the first line must be ---"),
        (b"You plan.", ": no frontmatter; the first line must be ---"),
        (b"---\nname: planner\nYou plan.", "/planner.md:1: the frontmatter that starts here is not closed"),
        (b"---\nname: planner\n---\n" + b"x" * 10_000_000, "is larger than the limit of 1 MiB"),
        (b"---\n---\n\x7fELF\x02\x01\x01\x00\x00", "has a NUL byte on line 3, so it seems to be a binary file"),
        ("---\nname: plané\n---\n".encode("latin-1"), "is not UTF-8: byte 0xe9 on line 2"),
        ("---\nname: planner\n---\n".encode("utf-16"), "has a NUL byte"),
    ],
)
def test_an_invalid_agent_file_is_one_error(data: bytes, message: str) -> None:
    found = get_error(parse_agent_file(data, path=Path("/repo/planner.md"), source="repo"))

    assert message in str(found)


def test_a_file_name_that_cannot_be_a_name_is_an_error_without_a_name_key() -> None:
    found = get_error(parse_file("", stem="My Planner"))

    assert found.message.startswith(
        'invalid agent name "My Planner", which is taken from the file name; use my-planner'
    )


def write_file(path: Path, text: str = "---\n---\nYou plan.\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_schema_may_be_in_a_file_beside_the_agent(tmp_path: Path) -> None:
    write_file(tmp_path / "plan.json", '{"type": "object", "required": ["plan"]}')

    found = read_agent_file(
        write_file(tmp_path / "planner.md", "---\noutput: plan.json\n---\n"), source="repo", root=tmp_path
    )

    assert found.agent is not None
    assert found.agent.output == {"type": "object", "required": ["plan"]}


@pytest.mark.parametrize(
    ("named", "content", "message"),
    [
        ("absent.json", None, "does not exist"),
        ("../outside.json", "{}", "is outside the repository and is not read"),
        ("broken.json", "{", "is not valid JSON"),
        ("list.json", "[]", "is not a JSON schema; expected a JSON object"),
        ("deep.json", "[" * 100_000, "is not valid JSON"),
    ],
)
def test_a_schema_file_that_cannot_be_used_is_an_error(
    tmp_path: Path, named: str, content: str | None, message: str
) -> None:
    repo = tmp_path / "repo"
    path = write_file(repo / "planner.md", f"---\noutput: {named}\n---\n")
    if content is not None:
        write_file(repo / named, content)

    found = get_error(read_agent_file(path, source="repo", root=repo))

    assert found.key == "output"
    assert message in found.message


def test_a_loop_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "planner.md").symlink_to("builder.md")
    (tmp_path / "builder.md").symlink_to("planner.md")

    found = get_error(read_agent_file(tmp_path / "planner.md", source="repo"))

    assert "is part of a symbolic link loop" in found.message


def test_a_link_to_nothing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "planner.md").symlink_to("absent.md")

    assert "is a broken symbolic link" in get_error(read_agent_file(tmp_path / "planner.md", source="repo")).message


def test_a_link_out_of_the_root_is_not_followed(tmp_path: Path) -> None:
    write_file(tmp_path / "secret.md")
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "planner.md").symlink_to("../secret.md")

    found = get_error(read_agent_file(tmp_path / "repo" / "planner.md", source="repo", root=tmp_path / "repo"))

    assert "is outside the repository and is not read" in found.message


def test_a_file_that_is_not_regular_is_refused_without_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "folder.md").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket.md"))

    messages = [
        get_error(read_agent_file(tmp_path / f"{name}.md", source="repo")).message
        for name in ("pipe", "folder", "socket")
    ]

    assert messages == [f"is {what}; use a regular file" for what in ("a pipe", "a folder", "a socket")]
    assert get_error(read_agent_file(Path("/dev/zero"), source="repo")).message == "is a device; use a regular file"


@contextmanager
def as_ordinary_user() -> Iterator[None]:
    """Switch to the user nobody for a moment, because root can read everything."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


def test_a_file_that_may_not_be_read_is_an_error(tmp_path: Path) -> None:
    path = write_file(tmp_path / "planner.md")
    path.chmod(0)

    with as_ordinary_user():
        found = get_error(read_agent_file(path, source="repo"))

    assert "is not readable by this user" in found.message


def test_a_file_name_of_any_bytes_is_shown_on_one_line(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\nb\xff.md"))
    write_file(path)

    found = get_error(read_agent_file(path, source="repo"))

    assert found.path.endswith("/a\\nb\\xff.md")


@pytest.mark.parametrize("loader", [yaml.CSafeLoader, yaml.SafeLoader])
@pytest.mark.parametrize(
    "frontmatter",
    [
        "[" * 100_000,
        "- " * 100_000,
        "? " * 100_000,
        '"\\ud800": 1',
        'a: "\\U00110000"',
        'a: "\\UFFFFFFFF"',
        "%YAML 9.9",
        "a: |\n\tx",
        "a: b\n...\nc: d",
        "!!map {a: b}",
        "&a a: b",
        "a: %x",
        "a: {,}",
        "\x00",
    ],
)
def test_malformed_frontmatter_is_refused_with_and_without_the_fast_loader(frontmatter: str, loader: type) -> None:
    with pytest.raises(MalformedText) as caught:
        parse_yaml_mapping(frontmatter, first_line=FIRST_LINE, loader=loader)

    assert caught.value.line >= 2


@given(st.binary(max_size=400) | st.binary(max_size=400).map(lambda data: b"---\n" + data + b"\n---\n"))
@settings(deadline=None)
def test_any_bytes_give_an_agent_or_an_error(data: bytes) -> None:
    found = parse_agent_file(data, path=Path("/repo/planner.md"), source="repo")

    assert (found.agent is None) == found.is_broken


VALUES = st.recursive(
    st.sampled_from(["a", "'x y'", "7", "-1", "1.5", "true", "no", "~", "2024-01-01", "*a", "&a b", "!!str 5", "a: b"])
    | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.lists(st.tuples(st.sampled_from([*TEAM_KEYS, "agent", "agents", "usd"]), inner), max_size=3).map(
            lambda pairs: "{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}"
        )
    ),
    max_leaves=6,
)
KEYS = st.sampled_from([*AGENT_KEYS, *map(to_camel_case, FOREIGN_KEYS), "consult"]) | st.text(max_size=8)


@given(st.lists(st.tuples(KEYS, VALUES), max_size=6), st.text(max_size=40), st.booleans())
@settings(deadline=None)
def test_any_text_gives_an_agent_or_an_error(pairs: list[tuple[str, str]], body: str, foreign: bool) -> None:
    frontmatter = "\n".join(f"{key}: {value}" for key, value in pairs)

    found = parse_file(frontmatter, body, foreign=foreign)

    assert (found.agent is None) == found.is_broken
    assert all("\n" not in str(diagnostic) for diagnostic in found.diagnostics)
    if found.agent is not None:
        assert re.fullmatch(r"[a-z0-9][a-z0-9-]{0,63}", found.agent.name)


@pytest.mark.parametrize("block", re.findall(r"```markdown\n(.*?)```", DOCS.read_text(), re.DOTALL))
def test_the_examples_in_the_docs_are_agents(block: str) -> None:
    found = parse_agent_file(block.encode(), path=Path("/repo/example.md"), source="repo")

    assert found.diagnostics == ()
    assert found.agent is not None


@pytest.mark.parametrize("key", [*AGENT_KEYS, *FOREIGN_KEYS, *TEAM_KEYS])
def test_every_key_is_in_the_docs(key: str) -> None:
    text = DOCS.read_text()

    assert f"`{key}`" in text or f"`{to_camel_case(key)}`" in text


@pytest.mark.parametrize(
    ("key", "below"),
    [
        ("router", FILE_KEYS["router"].keys),
        ("advisors", FILE_KEYS["advisors"].keys),
        ("members", TEAM_KEYS["members"].keys),
        ("budget", FILE_KEYS["budget"].keys),
        ("permissions", (*KINDS, "rule", "match", "not_match")),
    ],
)
def test_the_row_of_a_key_in_the_docs_names_every_key_below_it(key: str, below: Collection[str]) -> None:
    [row] = [line for line in DOCS.read_text().splitlines() if line.startswith(f"| `{key}` |")]

    assert [name for name in below if not re.search(rf"\b{name}\b", row)] == []


@pytest.mark.parametrize(
    ("matcher", "tools"),
    [("Edit|Write", ["Edit", "Write"]), ("Edit| *", []), ("*", []), (".*", []), ("", []), ("Edit(x)", [])],
)
def test_a_hook_whose_pattern_includes_all_tools_is_not_limited_to_some(matcher: str, tools: list[str]) -> None:
    hook = f'{{matcher: "{matcher}", hooks: [{{command: "true"}}]}}'

    found = parse_agent(f"hooks: {{PreToolUse: [{hook}]}}")

    assert [list(one.get("tools", ())) for one in found.other["hooks"]["before_tool"]] == [tools]


def test_every_key_of_a_hook_is_in_the_docs() -> None:
    page = DOCS.with_name("hooks.md").read_text()

    assert [key for key in HOOK_KEYS if f"| `{key}` |" not in page] == []


def test_a_key_of_a_team_at_the_top_level_is_said_to_belong_under_team() -> None:
    data = b"---\ndescription: Leads.\nmembers: [a]\nmax_iterations: 3\n---\nLead.\n"

    found = parse_agent_file(data, path=Path("/repo/lead.md"), source="repo")

    assert [one.message for one in found.diagnostics] == ["unknown key here, ignored; it belongs under team"] * 2
