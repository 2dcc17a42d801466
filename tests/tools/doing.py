"""Calling tools as the gate does, but without the gate: prepared, then performed."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from podium.core.engine import ToolAnswer
from podium.core.gate import ActingTool, PreparedCall
from podium.values.action import Action
from podium.values.event import ToolUse


def make_tool_use(tool: ActingTool, **arguments: Any) -> ToolUse:
    return ToolUse(id="c1", name=tool.name, arguments=arguments)


async def call_tool(tool: ActingTool, **arguments: Any) -> ToolAnswer:
    prepared = await tool.prepare(make_tool_use(tool, **arguments))
    return await prepared.act()


def make_started_action(tool: ActingTool, prepared: PreparedCall) -> Action:
    """Return the event of an action that has started."""
    return Action(
        run="r",
        agent="a",
        tool=tool.name,
        arguments=dict(prepared.arguments),
        inputs=dict(prepared.inputs),
        outputs=dict(prepared.outputs),
    )


def make_repository(directory: Path) -> Path:
    """Make a real git repository with one commit."""
    directory.mkdir(parents=True, exist_ok=True)
    run_git(directory, "init", "-q", "-b", "main")
    run_git(directory, "config", "user.email", "t@example.com")
    run_git(directory, "config", "user.name", "T")
    (directory / "a.txt").write_text("one\ntwo\n")
    run_git(directory, "add", ".")
    run_git(directory, "commit", "-q", "-m", "first")
    return directory


def run_git(directory: Path, *args: str) -> None:
    subprocess.run(["git", *args], cwd=directory, check=True, capture_output=True)
