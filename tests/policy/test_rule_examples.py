from __future__ import annotations

from typing import Any

import pytest

from podium.policy import Rules, check, generalised
from podium.policy.rule_examples import find_rule_examples
from podium.values.action import Action


def action(tool: str, **arguments: Any) -> Action:
    return Action(run="r", agent="a", tool=tool, arguments=arguments, directory="/srv/repo")


@pytest.mark.parametrize(
    ("asked", "covered", "not_covered"),
    [
        (action("bash", command="pytest -q tests"), "pytest -q docs", "pytest -q tests && rm -rf build"),
        (action("bash", command="git log --oneline"), "git log docs", "sudo git log --oneline"),
        (action("bash", command="mytool go"), "mytool go", "mytool go > /etc/passwd"),
        (action("write_file", path="src/a.py", content="x"), "src/a.py", "src/other-a.py"),
        (
            action("web_fetch", url="https://docs.example/x"),
            "https://docs.example/",
            "https://example.com/docs.example",
        ),
    ],
)
def test_examples_say_what_a_rule_covers_and_what_it_does_not(asked: Action, covered: str, not_covered: str) -> None:
    rule = generalised(asked)
    assert rule is not None

    examples = find_rule_examples(rule, asked)

    assert covered in examples.covered
    assert not_covered in examples.not_covered
    assert max(map(len, examples)) <= 3
    [key] = {"command", "path", "url"} & asked.arguments.keys()
    for texts, is_covered in ((examples.covered, True), (examples.not_covered, False)):
        verdicts = [check(action(asked.tool, **{**asked.arguments, key: one}), Rules(allow=(rule,))) for one in texts]
        assert {one.rule == rule and one.decision == "allow" for one in verdicts} == {is_covered}


def test_an_action_without_a_command_path_or_address_has_no_examples() -> None:
    assert find_rule_examples("mcp__tool", action("mcp__tool", x=1)) == ((), ())
