"""Attacks on the rules, through the whole product: an action needs a rule that covers it or a person's approval."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from podium import Run
from podium.policy import check, generalised
from podium.values.agent import Permissions
from podium.values.event import ActionBegan, PermissionAsked, ToolAnswered

from ..cli.conftest import Desk
from ..cli.test_inbox import list_waiting_requests
from ..cli.test_terminal import Terminal
from ..policy.test_commands import BROAD, BYPASSES
from ..policy.test_small_languages import ACTING, make_folder_to_act_in
from ..studio import Studio
from .stage import add_sly_agent, answer_with, bash, call, run_attended, run_sly_agent, set_rules, write

# P1


COMMANDS = [command for command in BYPASSES if command.strip() and "\0" not in command]
SHARES = [COMMANDS[start : start + 40] for start in range(0, len(COMMANDS), 40)]
"""No agent can perform more than sixty actions a minute."""


@pytest.mark.parametrize("commands", SHARES, ids=range(len(SHARES)))
async def test_a_corpus_of_bypasses_runs_nothing_under_broad_rules(
    studio: Studio, repo: Path, commands: list[str]
) -> None:
    (repo / "src").mkdir()
    (repo / "src" / "keep.py").write_text("x")
    set_rules(studio, allow=BROAD.allow)
    add_sly_agent(studio, {"calls": [{"name": "bash", "arguments": {"command": one}} for one in commands]})

    result = await run_sly_agent(studio, repo)

    assert len(COMMANDS) >= 120
    answers = [answered.text for answered in studio.events(result, ToolAnswered)]
    asked = len(studio.events(result, PermissionAsked))
    assert asked + sum(text.startswith("Not run, and nobody was asked") for text in answers) == len(commands)
    assert asked > len(commands) / 2
    assert [event.action.arguments for event in studio.events(result, ActionBegan)] == []
    assert {path.name for path in repo.iterdir()} == {".git", "a.txt", "src"}
    assert (repo / "src" / "keep.py").exists()


# P2


@pytest.mark.parametrize("scope", ["person", "repository", "agent"])
@pytest.mark.parametrize("mode", ["default", "accept-edits", "bypass"])
async def test_a_deny_of_any_scope_wins_over_every_narrower_allow(
    studio: Studio, repo: Path, scope: str, mode: Any
) -> None:
    denied = Permissions(deny=("Edit", "Bash(touch *)"))
    set_rules(studio, mode=mode, allow=["Write(/b.txt)", "Bash(touch b.txt)", "Edit(/b.txt)"])
    if scope == "person":
        both = structs.replace(studio.settings.permissions, deny=denied.deny)
        studio.settings = structs.replace(studio.settings, permissions=both)
    if scope == "repository":
        studio.settings = structs.replace(studio.settings, narrowing=denied)
    add_sly_agent(studio, write("b.txt"), bash("touch b.txt"), **({"permissions": denied} if scope == "agent" else {}))

    await run_sly_agent(studio, repo)

    assert not (repo / "b.txt").exists()


# P3


def test_rules_of_a_repository_loosen_nothing_and_a_warning_says_so(desk: Desk) -> None:
    (desk.repo / "podium.yaml").write_text(
        "permissions: {allow: [Bash, Edit], mode: bypass, deny: ['Edit(/kept.txt)']}\nsandbox: off\n"
    )
    (desk.home / "config.yaml").write_text("permissions: {allow: ['Edit(/kept.txt)']}\n")
    moves = [bash("touch ran.txt"), write("b.txt"), write("kept.txt")]
    desk.write_agent("sly", *moves, "The end.", tools=["Bash", "Write"], permissions={"allow": ["Bash", "Write"]})

    done = desk.run_podium("run", "sly", "go")

    assert done.stdout == "The end.\n"
    assert "permissions.allow: ignored" in done.stderr
    assert not any((desk.repo / name).exists() for name in ("ran.txt", "b.txt", "kept.txt"))


# P4


@pytest.mark.parametrize(
    "move",
    [
        call("no_such_tool", x=1),
        call("Bash", command="touch ran.txt"),
        call("mcp__nobody__tool"),
        call("bash"),
        call("bash", command=7),
        call("bash", command=["touch", "ran.txt"]),
        call("bash", command="touch ran.txt", extra=True),
        call("bash", command="touch ran.txt #" + "x" * 200_000),
        call("bash", command="touch ran.txt; '"),
        call("bash", command="touch ran.txt\0"),
        call("write_file", path="ran.txt"),
        call("write_file", path="ran.txt", content="x", mode="0777"),
        {"calls": [{"name": "", "arguments": {}}]},
    ],
    ids=lambda move: str(move)[:60],
)
async def test_what_is_unknown_oversize_or_unreadable_is_not_done(
    studio: Studio, repo: Path, move: dict[str, Any]
) -> None:
    set_rules(studio, allow=["Bash(touch *)", "Bash(ls *)"])
    add_sly_agent(studio, move)

    result = await run_sly_agent(studio, repo)

    assert result.text == "done", result.error
    assert studio.events(result, ActionBegan) == []
    assert not (repo / "ran.txt").exists()


# P5

UNSAFE = ["ls && make", "bash -c ls", "python3 -c 'print(1)'", "xargs ls", "env A=1 ls", "ls > b", "sudo ls"]


@pytest.mark.parametrize("command", UNSAFE)
async def test_always_is_neither_offered_nor_taken_for_what_runs_other_things(
    studio: Studio, repo: Path, command: str
) -> None:
    set_rules(studio)
    add_sly_agent(studio, bash(command), bash(command))
    asked_for: list[PermissionAsked] = []

    async def greedy(run: Run, asked: PermissionAsked) -> None:
        asked_for.append(asked)
        await run.answer(asked.id, "always" if len(asked_for) == 1 else "deny", by="me", rule=f"Bash({command})")

    result = await run_attended(studio, repo, greedy)

    assert asked_for[0].always == ""
    # The answer applies to exactly the same action in this run; it is not saved as a rule.
    other = await run_sly_agent(studio, repo)
    assert result.text == "done"
    assert studio.events(other, ActionBegan) == []


def test_a_terminal_offers_no_key_for_good_where_that_would_cover_too_much(desk: Desk) -> None:
    desk.write_agent("sly", bash("bash -c ls"), "The end.", tools=["Bash"])
    terminal = Terminal(desk, "run", "sly", "go", rows=30, columns=120)

    lines = terminal.wait_for("[y] once")
    terminal.process.send("p")
    terminal.wait_for("not an answer")
    terminal.wait_until(lambda shown: sum("[y] once" in line for line in shown) == 2)
    terminal.process.send("a")

    assert not any("[p]" in line or "always" in line for line in lines)
    assert terminal.wait_exit() != 0
    assert not (desk.home / "allowed.json").exists()


def test_a_command_line_keeps_no_rule_that_would_cover_too_much(desk: Desk) -> None:
    desk.write_agent("sly", bash("bash -c ls"), "The end.", tools=["Bash"])
    desk.run_podium("run", "sly", "go", "--park")
    [one] = list_waiting_requests(desk)

    refused = desk.run_podium("approve", str(one["id"]), "--always")

    assert refused.returncode == 2
    assert "no safe rule covers it" in refused.stderr
    assert [left["id"] for left in list_waiting_requests(desk)] == [one["id"]]
    assert not (desk.home / "allowed.json").exists()


# P6


@pytest.mark.parametrize("name", ["a[1]*.txt", "a?.txt", "!a.txt", "#a.txt", "a\\b.txt", "[!a].txt", "**.txt"])
async def test_the_rule_that_is_shown_is_the_one_that_is_kept_and_that_matches(
    studio: Studio, repo: Path, name: str
) -> None:
    set_rules(studio)
    add_sly_agent(studio, write(name), write(name, "y\n"), write("a1x.txt"))
    asked_for: list[PermissionAsked] = []

    async def for_good(run: Run, asked: PermissionAsked) -> None:
        asked_for.append(asked)
        await run.answer(asked.id, "always" if len(asked_for) == 1 else "deny", by="me", rule=asked.always)

    await run_attended(studio, repo, for_good)

    first, *others = asked_for
    assert first.always == generalised(first.action) != ""
    assert [asked.action.arguments["path"] for asked in others] == ["a1x.txt"]
    assert (repo / name).read_text() == "y\n"
    assert check(first.action, {"allow": [first.always]}).rule == first.always


# P7


@pytest.mark.parametrize(
    "command",
    [
        "; ".join(["ls"] * 51 + ["touch ran.txt"]),
        "ls " + "x" * 10_001,
        "ls " + "(" * 500 + ")" * 500,
        "echo " + "$(" * 200 + "touch ran.txt" + ")" * 200,
    ],
    ids=["parts", "length", "brackets", "substitutions"],
)
async def test_commands_that_are_too_large_to_inspect_are_asked_about(studio: Studio, repo: Path, command: str) -> None:
    set_rules(studio, allow=["Bash(ls *)", "Bash(echo *)", "Bash(touch *)"])
    add_sly_agent(studio, bash(command))

    result = await run_sly_agent(studio, repo)

    assert len(studio.events(result, PermissionAsked)) == 1
    assert not (repo / "ran.txt").exists()


# P8


def test_rules_are_out_of_a_commands_reach_and_hold_to_the_end_of_the_run(desk: Desk) -> None:
    (desk.home / "config.yaml").write_text("permissions: {deny: ['Bash(touch *)']}\n")
    script = f"echo 'permissions: {{allow: [Bash]}}' | tee {desk.home}/config.yaml podium.yaml .podium/config.yaml"
    (desk.repo / "loosen.sh").write_text(script)
    desk.write_agent("sly", bash("sh loosen.sh"), bash("touch ran.txt"), "The end.", tools=["Bash"])

    desk.run_podium("run", "sly", "go", "--permissions", "bypass")
    again = desk.run_podium("run", "sly", "go")

    assert (desk.home / "config.yaml").read_text() == "permissions: {deny: ['Bash(touch *)']}\n"
    assert not (desk.repo / "ran.txt").exists()
    assert again.stdout == "The end.\n"


# P10


@pytest.mark.parametrize(("mode", "is_done"), [("plan", False), ("dont-ask", False), ("default", True)])
def test_an_answer_holds_only_under_the_mode_that_the_run_goes_on_in(desk: Desk, mode: str, is_done: bool) -> None:
    desk.write_agent("sly", write("b.txt"), "The end.", tools=["Write"])
    desk.run_podium("run", "sly", "go", "--park")
    [one] = list_waiting_requests(desk)
    desk.run_podium("approve", str(one["id"]))

    desk.run_podium("resume", desk.run_id(), "--permissions", mode)

    assert (desk.repo / "b.txt").exists() is is_done


def test_a_request_that_waits_is_not_approved_by_resuming(desk: Desk) -> None:
    desk.write_agent("sly", bash("touch ran.txt"), "The end.", tools=["Bash"])
    desk.run_podium("run", "sly", "go", "--park")

    for mode in ("default", "accept-edits", "plan"):
        desk.run_podium("resume", desk.run_id(), "--permissions", mode, "--park")

    assert not (desk.repo / "ran.txt").exists()


async def test_an_answer_to_a_denied_action_changes_nothing(studio: Studio, repo: Path) -> None:
    set_rules(studio, deny=["Write"])
    add_sly_agent(studio, write("b.txt"))

    result = await run_attended(studio, repo, answer_with("always"))

    assert studio.events(result, PermissionAsked) == []
    assert not (repo / "b.txt").exists()


# T3


@pytest.mark.parametrize("mode", ["default", "plan"])
async def test_a_script_of_a_small_language_that_acts_is_not_run_unasked(studio: Studio, repo: Path, mode: Any) -> None:
    make_folder_to_act_in(repo)
    set_rules(studio, mode=mode)
    add_sly_agent(studio, *(bash(command) for command in ACTING.values()))

    result = await run_sly_agent(studio, repo)

    assert result.text == "done", result.error
    assert studio.events(result, ActionBegan) == []
    assert not (repo / "ran").exists()


# P11


async def test_a_wildcard_for_a_program_runs_no_other_program_and_no_wrapper_hides_a_denied_one(
    studio: Studio, repo: Path
) -> None:
    (repo / "mytool").write_text("#!/bin/sh\nfor word; do :; done\nexec $word ran.txt\n")
    (repo / "mytool").chmod(0o755)
    set_rules(studio, allow=["Bash(./mytool *)", "Bash(sqlite3 *)", "Bash(bun run *)"], deny=["Bash(touch *)"])
    asked = ["./mytool --exec touchy", "./mytool -c ./touchy", "sqlite3 a.db '.shell id'", "bun run bash x.sh"]
    denied = ["./mytool touch", "./mytool --exec=touch", "./mytool 'touch ran.txt'", "./mytool x touch ran.txt"]
    add_sly_agent(studio, *map(bash, [*asked, *denied]))

    result = await run_sly_agent(studio, repo)

    assert len(studio.events(result, PermissionAsked)) == len(asked)
    assert studio.events(result, ActionBegan) == []
    assert not (repo / "ran.txt").exists()
