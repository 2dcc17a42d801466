"""What agents say about their tool calls, in the words of Podium's tools and rules."""

from __future__ import annotations

from typing import Any

import pytest

from podium.core.engine import EngineAction
from podium.engines.acp.agent_program import AGENT_PROGRAMS
from podium.engines.acp.agent_tool_call import AgentToolCall
from podium.policy import Rules, check
from podium.values.action import Action

REPO = "/srv/repo"


def make_action(*updates: dict[str, Any], agent: str = "claude") -> EngineAction:
    call = AgentToolCall(id="1")
    for update in updates:
        call.add_update(update)
    return call.as_action(agent, [REPO], AGENT_PROGRAMS[agent].tool_names, sandbox="none")


@pytest.mark.parametrize(
    ("agent", "update", "tool", "arguments"),
    [
        ("goose", {"title": "shell · ls", "rawInput": {"command": "ls"}}, "bash", {"command": "ls"}),
        (
            "goose",
            {"title": "edit · a", "rawInput": {"path": "a", "before": "x", "after": "y"}},
            "edit_file",
            {"path": "a", "old": "x", "new": "y"},
        ),
        (
            "claude",
            {"_meta": {"claudeCode": {"toolName": "Write"}}, "rawInput": {"file_path": f"{REPO}/a", "content": "x"}},
            "write_file",
            {"path": "a", "content": "x"},
        ),
        (
            "codex",
            {"kind": "execute", "rawInput": {"command": ["bash", "-lc", "ls -l"], "cwd": REPO}},
            "bash",
            {"command": "ls -l"},
        ),
        ("codex", {"kind": "execute", "rawInput": ["git", "log", "a b"]}, "bash", {"command": "git log 'a b'"}),
        (
            "codex",
            {"kind": "execute", "rawInput": {"command": "ls", "cwd": "/"}},
            "bash",
            {"command": "ls", "cwd": "/"},
        ),
        ("copilot", {"kind": "fetch", "rawInput": {"url": "https://a.test"}}, "web_fetch", {"url": "https://a.test"}),
        ("copilot", {"kind": "read", "locations": [{"path": "/etc/passwd"}]}, "read_file", {"path": "/etc/passwd"}),
        ("copilot", {"kind": "delete", "rawInput": {"path": "a"}}, "copilot__delete", {"path": "a"}),
        ("opencode", {"_meta": {"toolName": "mcp__files__read"}, "kind": "other"}, "mcp__files__read", {}),
        (
            "codex",
            {
                "kind": "execute",
                "rawInput": {"server": "files", "tool": "read"},
                "_meta": {"is_mcp_tool_call": True},
            },
            "mcp__files__read",
            {"server": "files", "tool": "read"},
        ),
    ],
)
def test_a_call_gets_the_name_and_arguments_of_podiums_tool(
    agent: str, update: dict[str, Any], tool: str, arguments: dict[str, Any]
) -> None:
    action = make_action(update, agent=agent)

    assert (action.tool, action.arguments) == (tool, arguments)


def test_what_is_said_in_several_messages_is_joined() -> None:
    diff = {"type": "diff", "path": f"{REPO}/a.py", "oldText": "one\ntwo\nthree\n", "newText": "one\n2\nthree\n"}

    action = make_action({"title": "Edit a.py"}, {"kind": "edit"}, {"content": [diff], "status": "pending"})

    assert action.tool == "edit_file"
    assert action.arguments == {"path": "a.py", "old": "one\ntwo\nthree\n", "new": "one\n2\nthree\n"}
    assert action.shown.splitlines()[2:] == [" one", "-two", "+2", " three"]
    assert (action.changed_lines, list(action.outputs)) == (2, ["a.py"])


def test_a_thin_request_says_that_it_is_thin() -> None:
    action = make_action({"title": "Change some files", "kind": "edit"})

    assert action.shown == "Change some files\nThe agent gave no details about this action."


def test_a_diff_of_a_hundred_thousand_lines_is_shown_at_once() -> None:
    old = "".join(f"{number}\n" for number in range(100_000))
    diff = {"type": "diff", "path": "a", "oldText": old, "newText": old.replace("500\n", "changed\n", 1)}

    assert make_action({"kind": "edit", "content": [diff]}).changed_lines == 2


@pytest.mark.parametrize(
    "update",
    [
        {"kind": "edit", "title": "Edit"},
        {"kind": "execute", "title": "`git status`"},
        {"kind": "execute", "rawInput": {"command": "git status", "env": {"LD_PRELOAD": "x"}}},
        {"kind": "execute", "rawInput": {"command": ["git", 5]}},
        {"kind": "edit", "rawInput": {"path": "a", "content": "x", "mode": "0777"}},
        {"kind": "edit", "rawInput": {"path": "/etc/hosts", "content": "x"}},
        {"kind": "edit", "rawInput": {"path": ".git/hooks/pre-commit", "content": "x"}},
        {"rawInput": "text", "kind": 7, "title": None, "content": "no list", "locations": [5, {}]},
    ],
    ids=["no path", "no command", "environment", "no words", "other argument", "outside", "protected", "wrong types"],
)
def test_what_is_not_understood_in_full_is_never_allowed_by_a_rule(update: dict[str, Any]) -> None:
    action = make_action(update)
    rules = Rules(allow=("Bash(git status *)", "Bash(git status)", "Edit(/src/**)", "Edit(./a)"))

    verdict = check(Action(run="r", agent="a", tool=action.tool, arguments=dict(action.arguments)), rules)

    assert verdict.decision == "ask"


def test_an_action_in_an_additional_checkout_names_it_and_has_paths_relative_to_it() -> None:
    other, names = "/srv/other", AGENT_PROGRAMS["claude"].tool_names
    updates = (
        {"_meta": {"claudeCode": {"toolName": "Write"}}, "rawInput": {"file_path": f"{other}/.git/x", "content": "x"}},
        {"kind": "execute", "rawInput": {"command": "ls", "cwd": other}},
        {"kind": "execute", "rawInput": {"command": "ls", "cwd": REPO}},
    )
    actions = []
    for update in updates:
        call = AgentToolCall(id="1")
        call.add_update(update)
        actions.append(call.as_action("claude", [REPO, other], names, sandbox="none"))

    assert [(one.directory, dict(one.arguments)) for one in actions] == [
        (other, {"path": ".git/x", "content": "x"}),
        (other, {"command": "ls"}),
        ("", {"command": "ls"}),
    ]
