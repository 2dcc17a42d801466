"""Hooks, end to end: a scripted model over HTTP, a real repository, real commands in the real sandbox."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from anyio import sleep

from podium import Agent, App, Result, Settings
from podium.files.settings_files import read_settings_files
from podium.store.fault_injection import Fault, refuse_after
from podium.store.reader import StoreReader
from podium.values.event import (
    ActionRefused,
    HookRan,
    Noticed,
    PermissionAsked,
    RunEnded,
    ToolAnswered,
)

from ..studio import expire_leases
from ..workers.worker_lab import WorkerLab, bash, make_scripted_agent, write
from .worker_runs import invoke_podium, open_lab

pytestmark = pytest.mark.anyio

ALLOW = "permissions: {allow: [Bash, Write, Edit]}\n"
KEEP = "cat >> events.jsonl"
"""A hook that appends its event to a file in the checkout."""


@pytest.fixture
async def lab() -> AsyncIterator[WorkerLab]:
    async with open_lab() as lab:
        yield lab


def write_hooks(lab: WorkerLab, hooks: dict[str, Any], rest: str = ALLOW) -> None:
    lab.write_settings(f"hooks: {json.dumps(hooks)}\n{rest}")


async def run_agent(lab: WorkerLab, *moves: Any, fault: Fault | None = None) -> Result:
    """Run an agent that follows these script steps, with the person's settings."""
    return await run_named(lab, make_scripted_agent(*moves), fault=fault)


async def run_named(lab: WorkerLab, agent: str | Agent, *, fault: Fault | None = None) -> Result:
    async with App(load_settings(lab), environ=lab.environ, fault=fault) as app:
        return await app.run(agent, "go", repo=lab.root)


async def resume(lab: WorkerLab, run: str) -> Result:
    expire_leases(lab.store)
    async with App(load_settings(lab), environ=lab.environ) as app, app.resume(run) as resumed:
        return await resumed.result()


def load_settings(lab: WorkerLab) -> Settings:
    return Settings.load(lab.environ, repo=lab.repo.path)


async def call_podium(lab: WorkerLab, *arguments: str) -> str:
    said = await invoke_podium(lab, *arguments, "--repo", lab.root)
    assert said.exit_code == 0, said.stderr
    return said.stdout


def find_run(lab: WorkerLab) -> str:
    with StoreReader(lab.store) as reader:
        return reader.list_runs()[0].id


def read_events(lab: WorkerLab) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (lab.repo.path / "events.jsonl").read_text().splitlines() if line]


async def test_each_event_of_a_run_reaches_its_hooks_once_as_json(lab: WorkerLab) -> None:
    events = ("run_started", "run_ended", "before_tool", "after_tool", "permission_asked")
    write_hooks(lab, dict.fromkeys(events, KEEP), rest="permissions: {allow: [Bash]}\n")

    result = await run_agent(lab, bash("mkdir made"), write("no.txt"), "done")

    assert result.succeeded, result.error
    run_id = result.run_id
    seen = [(one["event"], one.get("tool", "")) for one in read_events(lab)]
    assert seen == [
        ("run_started", ""),
        ("before_tool", "bash"),
        ("after_tool", "bash"),
        ("before_tool", "write_file"),
        ("permission_asked", "write_file"),
        ("after_tool", "write_file"),
        ("run_ended", ""),
    ]
    before, after = (one for one in read_events(lab) if one.get("tool") == "bash")
    assert before["arguments"]["command"] == "mkdir made"
    assert (before["run"], before["agent"], before["repo"]) == (run_id, "hand", lab.root)
    assert "exit code 0" in after["answer"]
    assert read_events(lab)[-1]["outcome"] == "succeeded"
    recorded = lab.events(run_id, HookRan)
    assert [(one.event, one.outcome) for one in recorded] == [(event, "passed") for event, _ in seen]
    assert isinstance(lab.entries(run_id)[-1].event, RunEnded)


async def test_a_hook_denies_with_its_reason_and_the_agent_goes_on(lab: WorkerLab) -> None:
    guard = "grep -q rm && { echo 'no removing here' >&2; exit 2; } || true"
    write_hooks(lab, {"before_tool": {"command": guard, "tools": "Bash"}})

    result = await run_agent(lab, bash("rm a.txt"), bash("mkdir fine"), "done")

    assert result.succeeded, result.error
    run_id = result.run_id
    assert (lab.repo.path / "a.txt").exists()
    assert (lab.repo.path / "fine").is_dir()
    [refused] = lab.events(run_id, ActionRefused)
    assert refused.reason == "a hook denied it: no removing here"
    assert [one.outcome for one in lab.events(run_id, HookRan)] == ["denied", "passed"]


async def test_a_hook_cannot_allow_what_the_rules_deny_or_ask(lab: WorkerLab) -> None:
    yes = """echo '{"decision": "allow", "context": "remember the tests"}'"""
    write_hooks(lab, {"before_tool": yes}, rest="permissions: {deny: [Bash(rm *)]}\n")

    result = await run_agent(
        lab,
        bash("rm a.txt"),
        write("no.txt"),
        {"calls": [{"name": "read_file", "arguments": {"path": "a.txt"}}]},
        "done",
    )

    assert result.succeeded, result.error
    run_id = result.run_id
    assert (lab.repo.path / "a.txt").exists()
    assert not (lab.repo.path / "no.txt").exists()
    assert len(lab.events(run_id, ActionRefused)) == 2
    assert len(lab.events(run_id, PermissionAsked)) == 1
    last = lab.events(run_id, ToolAnswered)[-1]
    assert last.text.endswith("[a hook adds: remember the tests]")


HOSTILE = {
    "hangs": ({"command": "sleep 1000", "timeout": 0.5}, "timed out after 0.5 s"),
    "prints 100 MB": ("head -c 100000000 /dev/zero", "printed more than 64 KiB"),
    "forks": ({"command": "while true; do sleep 1000 & done", "timeout": 5}, "fork"),
    "is missing": ({"command": ["/no/such/program"]}, ""),
    "replies nonsense": ("""echo '{"decision": "perhaps"}'""", "unknown decision 'perhaps'; expected deny"),
    "writes escapes": (r"printf '\033[2J\033]0;x\007' >&2; exit 1", r"\x1b[2J\x1b]0;x\x07"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_nothing_happens_if_a_hook_that_must_be_asked_first(lab: WorkerLab, name: str) -> None:
    hook, reason = HOSTILE[name]
    write_hooks(lab, {"before_tool": hook})

    result = await run_agent(lab, write("no.txt"), "done")

    assert result.succeeded, result.error
    run_id = result.run_id
    assert not (lab.repo.path / "no.txt").exists()
    [ran] = lab.events(run_id, HookRan)
    assert ran.outcome in ("failed", "denied")
    assert reason in ran.reason
    assert ran.seconds < 10
    await lab.wait_no_processes()


async def test_a_hook_for_what_has_happened_can_fail_without_harm(lab: WorkerLab) -> None:
    write_hooks(lab, {"after_tool": "exit 3", "run_ended": {"command": "sleep 1000", "timeout": 0.3}})

    result = await run_agent(lab, write("yes.txt"), "done")

    assert result.succeeded, result.error
    run_id = result.run_id
    assert (lab.repo.path / "yes.txt").exists()
    assert [(one.event, one.outcome) for one in lab.events(run_id, HookRan)] == [
        ("after_tool", "failed"),
        ("run_ended", "failed"),
    ]


async def test_a_hook_runs_in_the_sandbox_unless_the_person_says_otherwise(lab: WorkerLab) -> None:
    outside = lab.folder / "outside.txt"
    script = lab.folder / "hooks" / "note.sh"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\ncat >/dev/null\nid -un >> "$1" 2>/dev/null || echo refused\necho {}\n')
    script.chmod(0o755)
    inside, free = [str(script), str(outside)], [str(script), str(outside)]
    write_hooks(lab, {"run_started": {"command": inside}, "run_ended": {"command": free, "sandbox": False}})

    result = await run_agent(lab, "done")

    assert result.succeeded, result.error
    run_id = result.run_id
    assert [one.outcome for one in lab.events(run_id, HookRan)] == ["passed", "passed"]
    assert len(outside.read_text().splitlines()) == 1


async def test_hooks_of_a_repository_are_called_only_once_they_are_trusted(lab: WorkerLab) -> None:
    (lab.repo.path / "podium.yaml").write_text(
        'hooks: {before_tool: {command: "echo stop >&2; exit 1", sandbox: false}}\n'
    )
    lab.write_settings(ALLOW)

    untrusted = await run_agent(lab, write("one.txt"), "done")
    await call_podium(lab, "trust", "hooks.before_tool")
    trusted = await run_agent(lab, write("two.txt"), "done")

    assert lab.events(untrusted.run_id, HookRan) == []
    assert (lab.repo.path / "one.txt").exists()
    assert not (lab.repo.path / "two.txt").exists()
    assert [one.reason for one in lab.events(trusted.run_id, HookRan)] == ["stop"]
    assert "commands that Podium starts when events occur in a run" in await call_podium(lab, "trust", "--list")
    checked = await call_podium(lab, "config", "validate")
    assert "only your own settings can let a hook run outside the sandbox" in checked


AGENT = """---
description: Is played.
tools: Bash
hooks:
  PreToolUse:
    - matcher: "Bash|Write"
      hooks:
        - type: command
          command: >-
            python3 -c "import json, sys; e = json.load(sys.stdin);
            sys.exit('not this one' if 'secret' in e['tool_input']['command'] else 0)"
---
You are played.
```script
[{"calls": [{"name": "bash", "arguments": {"command": "mkdir secret"}}]}, "done"]
```
"""


async def test_hooks_of_an_agents_file_are_called_only_once_they_are_trusted(lab: WorkerLab) -> None:
    file = lab.repo.path / ".podium" / "agents" / "careful.md"
    file.parent.mkdir(parents=True)
    file.write_text(AGENT)
    lab.write_settings(ALLOW)

    warned = await call_podium(lab, "check")
    first = (await run_named(lab, "careful")).run_id
    listed = await call_podium(lab, "trust", "--list")
    await call_podium(lab, "trust", "agents.careful.hooks")
    (lab.repo.path / "secret").rmdir()
    second = (await run_named(lab, "careful")).run_id

    words = "its hooks are not called until you trust them with podium trust"
    assert f"hooks: {words}" in warned
    assert f"careful: {words}." in [one.text for one in lab.events(first, Noticed)]
    assert lab.events(first, HookRan) == []
    assert "new: agents.careful.hooks (.podium/agents/careful.md)" in listed
    assert not (lab.repo.path / "secret").exists()
    [ran] = lab.events(second, HookRan)
    assert (ran.outcome, ran.agent, ran.reason) == ("denied", "careful", "not this one")
    assert words not in await call_podium(lab, "check")
    file.write_text(AGENT.replace("not this one", "changed"))
    assert words in await call_podium(lab, "check")


async def test_a_dry_run_calls_no_hooks(lab: WorkerLab) -> None:
    write_hooks(lab, dict.fromkeys(("run_started", "before_tool", "run_ended"), KEEP))
    lab.write_agent(make_scripted_agent(write("x.txt"), "done"))

    said = await lab.run_podium("run", "hand", "go", "--dry-run")

    assert said.returncode == 0, said.stderr
    assert not (lab.repo.path / "events.jsonl").exists()


async def test_a_worker_that_ends_tells_its_hooks_its_own_checkout(lab: WorkerLab) -> None:
    outside = lab.folder / "ended.jsonl"
    hook = {
        "command": f'cat >> {outside}; echo "$(printenv PODIUM_REPO) $PWD $(ls -A)" >> {outside}.dir',
        "sandbox": False,
    }
    write_hooks(lab, {"worker_ended": hook})
    worker = await lab.delegate("feat/x", write("new.txt"), "done")

    lab.start_commander()
    await lab.wait_ended(worker)

    [ended] = [json.loads(line) for line in outside.read_text().splitlines()]
    assert (ended["event"], ended["branch"], ended["outcome"]) == ("worker_ended", "feat/x", "succeeded")
    repo, *rest = Path(f"{outside}.dir").read_text().split()
    assert repo == str(lab.worktree_path("feat/x"))
    assert [Path(folder).parent for folder in rest] == [lab.folder / "home" / "program-folders"]


async def test_a_hook_keeps_a_branch_out_of_a_merge(lab: WorkerLab) -> None:
    lab.repo.branch("feat/good", {"good.txt": "x\n"})
    lab.repo.branch("feat/bad", {"bad.txt": "x\n"})
    guard = "grep -q feat/bad && { echo 'not on a Friday' >&2; exit 1; } || echo '{\"context\": \"looks fine\"}'"
    write_hooks(lab, {"before_merge": guard})

    said = await invoke_podium(lab, "merge", "feat/bad", "feat/good", "--yes", "--json", "--repo", lab.root)

    assert said.exit_code == 1, said.stderr
    merged = json.loads(said.stdout)
    assert [one["branch"] for one in merged["coupled"]] == ["feat/good"]
    [left_out] = merged["left_out"]
    assert (left_out["branch"], left_out["reason"]) == ("feat/bad", "hook")
    assert left_out["why"] == "a hook denied it: not on a Friday"
    assert "feat/good: looks fine" in said.stderr
    assert (lab.repo.path / "good.txt").exists()
    assert not (lab.repo.path / "bad.txt").exists()


async def test_a_killed_run_calls_no_hook_twice_that_had_ended(lab: WorkerLab) -> None:
    write_hooks(lab, {"before_tool": KEEP, "after_tool": KEEP, "run_started": KEEP, "run_ended": KEEP})
    moves = [bash("mkdir one"), bash("mkdir two"), "done"]

    result = await run_agent(lab, *moves)
    entries = lab.entries(result.run_id)
    expected = [(one["event"], one.get("arguments", {}).get("command", "")) for one in read_events(lab)]
    ended = [number for number, entry in enumerate(entries, 1) if isinstance(entry.event, HookRan)]

    assert result.succeeded
    assert len(expected) == len(ended) == 6
    for number in ended:
        (lab.repo.path / "events.jsonl").unlink()
        for name in ("one", "two"):
            (lab.repo.path / name).rmdir()
        killed = await run_agent(lab, *moves, fault=refuse_after(number))
        assert killed.outcome == "interrupted"
        assert (await resume(lab, killed.run_id)).succeeded
        seen = [(one["event"], one.get("arguments", {}).get("command", "")) for one in read_events(lab)]
        assert seen == expected
        assert [one.is_error for one in lab.events(killed.run_id, ToolAnswered)] == [False, False]


async def test_a_run_that_is_killed_while_a_hook_runs_calls_it_again_and_leaves_nothing_running(
    lab: WorkerLab,
) -> None:
    once = "cat >/dev/null; test -e started || { touch started; sleep 1000; }"
    write_hooks(lab, {"before_tool": {"command": once, "timeout": 100}})
    lab.write_agent(make_scripted_agent(write("late.txt"), "done"))

    with subprocess.Popen(
        [sys.executable, "-P", "-m", "podium", "run", "hand", "go", "--quiet"],
        cwd=lab.repo.path,
        env=lab.environ,
        stdout=subprocess.DEVNULL,
    ) as process:
        while not (lab.repo.path / "started").exists():  # noqa: ASYNC110 - another process makes the file
            await sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
    await lab.wait_no_processes()
    killed = find_run(lab)

    assert (await resume(lab, killed)).succeeded
    assert [one.outcome for one in lab.events(killed, HookRan)] == ["passed"]
    assert (lab.repo.path / "late.txt").exists()


@pytest.mark.parametrize(
    ("hooks", "finding"),
    [
        ("{before_tool: {command: x, tools: Bash(rm *)}}", '"Bash(rm *)" is not the name of a tool'),
        ("{before_tool: {tools: Bash}}", "this hook needs either a command or a plugin; set one of them"),
        ("{before_tool: {command: x, plugin: y}}", "this hook needs either a command or a plugin; set one of them"),
        ("{before_tol: x}", 'hooks for the event "before_tol" are not supported in this file; available: run_started'),
        ("{before_tool: {command: x, timeout: -1}}", "hooks.before_tool.timeout: expected a number above 0"),
        ("{before_tool: {command: []}}", "expected a program with its arguments, got an empty list"),
        ("[x]", "expected events such as before_tool"),
    ],
)
async def test_a_hook_that_cannot_work_is_found_before_it_is_needed(tmp_path: Path, hooks: str, finding: str) -> None:
    (tmp_path / "config.yaml").write_text(f"hooks: {hooks}\n")

    found = [str(one) for one in read_settings_files(tmp_path).diagnostics]

    assert any(finding in one for one in found), found
