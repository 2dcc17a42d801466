from __future__ import annotations

import json
from pathlib import Path

import pytest

from podium.files.always_allow_rules import AllowedRule, save_allowed_rule

from .conftest import Desk

RULES = """\
permissions:
  allow:
    - rule: Bash(npm run test *)
      match: [npm run test, npm run test x]
      not_match: npm run tests
    - Edit(/src/**)
  ask: [Bash(git push *)]
  deny: [Bash(rm *)]
"""


@pytest.fixture
def rules(desk: Desk) -> Desk:
    (desk.home / "config.yaml").write_text(RULES)
    return desk


@pytest.mark.parametrize(
    ("words", "code", "decision", "rule", "line"),
    [
        (["npm", "run", "test", "x"], 0, "allow", "Bash(npm run test *)", 3),
        (["git push origin main"], 3, "ask", "Bash(git push *)", 7),
        (["sudo", "rm", "-rf", "build"], 4, "deny", "Bash(rm *)", 8),
        (["npm run test && rm x"], 4, "deny", "Bash(rm *)", 8),
        (["npm", "run", "test", "&& rm x"], 0, "allow", "Bash(npm run test *)", 3),
        (["make"], 3, "ask", None, None),
    ],
)
def test_a_command_is_judged_by_the_rules_that_hold_here(
    rules: Desk, words: list[str], code: int, decision: str, rule: str | None, line: int | None
) -> None:
    said = rules.invoke("policy", "check", "--json", "--", *words)
    for_people = rules.invoke("policy", "check", "--", *words)

    found = json.loads(said.stdout)
    assert (said.exit_code, for_people.exit_code) == (code, code)
    assert (found["decision"], found["rule"], found["mode"]) == (decision, rule, "default")
    assert found["where"] == ([f"{rules.home}/config.yaml:{line}"] if line else [])
    assert for_people.stdout.startswith(f"{decision}: {found['reason']}\n")
    assert (f"rule: {rule}, {rules.home}/config.yaml:{line}\n" in for_people.stdout) == (rule is not None)


def test_a_tool_is_judged_with_what_it_is_given(rules: Desk) -> None:
    allowed = rules.invoke("policy", "check", "--tool", "edit_file", "--path", "src/x.py")
    asked = rules.invoke("policy", "check", "--tool", "edit_file", "--path", "x.py")
    accepted = rules.invoke("policy", "check", "--tool", "edit_file", "--path", "x.py", "--mode", "accept-edits")
    fetched = rules.invoke("policy", "check", "--tool", "WebFetch", "--url", "https://a.test/x")

    assert [one.exit_code for one in (allowed, asked, accepted, fetched)] == [0, 3, 0, 3]
    assert allowed.stdout.splitlines()[0] == "allow: Edit(/src/**) allows it"


def test_repository_and_agent_tighten_and_their_lines_are_shown(rules: Desk) -> None:
    (rules.repo / "podium.yaml").write_text("permissions:\n  allow: [Bash(npm run test *)]\n  deny: [Bash(make *)]\n")
    rules.write_agent("careful", permissions={"deny": ["Bash(npm run test *)"], "allow": ["Bash(curl *)"]})

    by_repo = json.loads(rules.invoke("policy", "check", "--json", "--", "make").stdout)
    by_person = json.loads(rules.invoke("policy", "check", "--json", "--", "npm run test").stdout)
    by_agent = rules.invoke("policy", "check", "--agent", "careful", "--json", "--", "npm run test")
    not_allowed = rules.invoke("policy", "check", "--agent", "careful", "--", "curl x")

    assert by_repo["where"] == ["podium.yaml:3"]
    assert by_person["where"] == [f"{rules.home}/config.yaml:3"]
    assert by_agent.exit_code == 4
    assert json.loads(by_agent.stdout)["where"] == [".podium/agents/careful.md:4"]
    assert not_allowed.exit_code == 3


def test_a_rule_that_was_always_allowed_is_found_where_it_is_kept(rules: Desk) -> None:
    save_allowed_rule(rules.home, AllowedRule(rule="Bash(make lint)", at=0.0))

    found = json.loads(rules.invoke("policy", "check", "--json", "--", "make lint").stdout)

    assert (found["decision"], found["where"]) == ("allow", [f"{rules.home}/allowed.json"])


def test_in_dont_ask_mode_a_rule_that_asks_denies_and_is_shown(rules: Desk) -> None:
    said = rules.invoke("policy", "check", "--mode", "dont-ask", "--json", "--", "git push")

    assert said.exit_code == 4
    assert json.loads(said.stdout)["where"] == [f"{rules.home}/config.yaml:7"]


def test_the_rules_of_another_repository_can_be_checked(rules: Desk, tmp_path: Path) -> None:
    (tmp_path / "podium.yaml").write_text("permissions: {deny: [Bash(npm *)]}\n")

    assert rules.invoke("policy", "check", "--repo", str(tmp_path), "--", "npm run test").exit_code == 4


@pytest.mark.parametrize(
    "arguments",
    [
        ["check"],
        ["check", "--path", "x"],
        ["check", "--tool", "bash", "--", "ls"],
        ["check", "--path", "x", "--", "ls"],
        ["check", "--mode", "yolo", "--", "ls"],
        ["check", "--agent", "nobody", "--", "ls"],
        ["explain"],
        ["test", "nowhere.yaml"],
    ],
)
def test_invalid_arguments_are_a_usage_error(desk: Desk, arguments: list[str]) -> None:
    said = desk.invoke("policy", *arguments)

    assert said.exit_code == 2
    assert said.stderr.startswith("podium: ")


def test_a_command_is_explained_part_by_part(rules: Desk) -> None:
    found = json.loads(rules.invoke("policy", "explain", "--json", "--", "npm run test | sudo rm -f log").stdout)

    assert [(part["words"], part["decision"]) for part in found["parts"]] == [
        (["npm", "run", "test"], "allow"),
        (["sudo", "rm", "-f", "log"], "deny"),
    ]
    assert ["rm", "-f", "log"] in [part["words"] for part in found["carried"]]
    assert (found["decision"], found["rule"], found["always"]) == ("deny", "Bash(rm *)", None)
    assert found["writes"] == ["log"]


def test_what_always_would_save_is_shown(rules: Desk) -> None:
    said = rules.invoke("policy", "explain", "--", "cargo check -q")

    assert said.exit_code == 0
    assert said.stdout == (
        'ask  cargo check -q  no rule allows it\n\nask: no rule allows it\n"always" would save: Bash(cargo check *)\n'
    )


def test_a_command_that_cannot_be_parsed_is_shown_as_left_to_a_person(rules: Desk) -> None:
    said = rules.invoke("policy", "explain", "--", "npm run test $(rm -f \x1b[2Jx) > out")

    assert "it contains control characters" in said.stdout
    assert "deny  rm -f" in said.stdout
    assert "\x1b" not in said.stdout


def test_examples_of_all_rules_are_tried(rules: Desk) -> None:
    rules.write_agent("careful", permissions={"deny": [{"rule": "Read(*.pem)", "match": ["a.pem"]}]})

    said = rules.invoke("policy", "test")
    found = json.loads(rules.invoke("policy", "test", "--json").stdout)

    assert (said.exit_code, said.stdout) == (0, "5 rules, 4 examples: all passed\n")
    assert (found["rules"], found["examples"], found["failed"]) == (5, 4, [])


def test_every_failing_example_is_listed_with_its_file_and_line(desk: Desk) -> None:
    path = desk.repo / "podium.yaml"
    path.write_text("permissions:\n  deny:\n    - Bash(\n    - {rule: Read(./a), match: [b, a, c], not_match: [a]}\n")

    said = desk.invoke("policy", "test")
    found = json.loads(desk.invoke("policy", "test", str(path), "--json").stdout)

    assert said.exit_code == 1
    assert said.stdout.splitlines()[-1] == "2 rules, 4 examples: 4 failed"
    assert 'podium.yaml:4: the rule "Read(./a)" under deny does not cover its example "b"' in said.stdout
    assert [(one["line"], one["example"]) for one in found["failed"]] == [(3, None), (4, "b"), (4, "c"), (4, "a")]


def test_a_file_that_cannot_be_read_is_a_mistake(desk: Desk) -> None:
    (desk.repo / "podium.yaml").write_text("permissions: [\n")

    said = desk.invoke("policy", "test")

    assert said.exit_code == 2
    assert "podium.yaml:2: this is not valid YAML" in said.stderr


# Saved rules


def save(rules: Desk, rule: str, repo: str = "") -> None:
    save_allowed_rule(rules.home, AllowedRule(rule=rule, at=1_700_000_000.0, by="me", run="r1", repo=repo))


def decide(rules: Desk, command: str) -> str:
    found: str = json.loads(rules.invoke("policy", "check", "--json", "--", command).stdout)["decision"]
    return found


def test_a_saved_rule_holds_in_its_own_repository_only(rules: Desk) -> None:
    save(rules, "Bash(make lint)", str(rules.repo))
    save(rules, "Bash(make docs)", "/some/other/repository")
    save(rules, "Bash(make all)")

    assert [decide(rules, f"make {target}") for target in ("lint", "docs", "all")] == ["allow", "ask", "allow"]


def test_saved_rules_are_listed_with_their_numbers_and_repositories(rules: Desk) -> None:
    save(rules, "Bash(make lint)", str(rules.repo))
    save(rules, "Bash(make all)")

    listed = rules.invoke("policy", "list").stdout.splitlines()
    found = json.loads(rules.invoke("policy", "list", "--json").stdout)["rules"]

    assert listed[0].split()[:3] == ["1", "Bash(make", "lint)"]
    assert str(rules.repo.name) in listed[0]
    assert "everywhere" in listed[1]
    assert [(one["number"], one["rule"], one["repo"]) for one in found] == [
        (1, "Bash(make lint)", str(rules.repo)),
        (2, "Bash(make all)", None),
    ]


def test_without_saved_rules_the_list_says_so(rules: Desk) -> None:
    assert rules.invoke("policy", "list").stdout.startswith("No rules are saved.")


def test_a_revoked_rule_asks_again(rules: Desk) -> None:
    save(rules, "Bash(make lint)", str(rules.repo))
    save(rules, "Bash(make all)")

    by_number = rules.invoke("policy", "revoke", "2")
    by_text = rules.invoke("policy", "revoke", "Bash(make lint)")

    assert by_number.stdout == "Bash(make all) is no longer allowed everywhere.\n"
    assert by_text.exit_code == 0
    assert [decide(rules, "make lint"), decide(rules, "make all")] == ["ask", "ask"]
    assert json.loads(rules.invoke("policy", "list", "--json").stdout)["rules"] == []


def test_revoking_by_text_means_the_rule_of_this_repository(rules: Desk) -> None:
    save(rules, "Bash(make lint)", "/some/other/repository")
    save(rules, "Bash(make lint)", str(rules.repo))

    revoked = json.loads(rules.invoke("policy", "revoke", "Bash(make lint)", "--json").stdout)["revoked"]

    assert revoked["repo"] == str(rules.repo)
    assert decide(rules, "make lint") == "ask"


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("7", "there is no rule number 7; run podium policy list to see the saved rules and their numbers"),
        ("Bash(make)", 'there is no saved rule "Bash(make)"; run podium policy list to see'),
        ("Bash(make lint)", "is saved more than once; give one of the numbers 1, 2 instead"),
    ],
)
def test_a_rule_that_cannot_be_revoked_is_refused_with_a_sentence(rules: Desk, named: str, said: str) -> None:
    save(rules, "Bash(make lint)", "/one")
    save(rules, "Bash(make lint)", "/two")

    refused = rules.invoke("policy", "revoke", named)

    assert refused.exit_code == 2
    assert said in refused.stderr
