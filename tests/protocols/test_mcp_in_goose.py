"""`podium mcp` as an extension of goose, which a person uses in a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pexpect  # type: ignore[import-untyped]  # it has no types
import yaml
from anyio import to_thread

from podium.testing import ModelServer, Move, calls, read_entries

from ..installed_agents import find_goose
from .conftest import find_newest_run, write_agents

TOO_LONG = 60


def configure_goose(folder: Path, model_url: str) -> dict[str, str]:
    """Write goose's configuration with Podium as an extension, and return goose's environment."""
    extension = {
        "enabled": True,
        "type": "stdio",
        "name": "podium",
        "cmd": sys.executable,
        "args": ["-m", "podium", "mcp"],
        "envs": {"PODIUM_HOME": str(folder / "podium")},
        "timeout": 300,
    }
    settings = folder / ".config" / "goose"
    settings.mkdir(parents=True)
    (settings / "config.yaml").write_text(yaml.safe_dump({"extensions": {"podium": extension}}), encoding="utf-8")
    return {
        "PATH": os.environ["PATH"],
        "TERM": "xterm",
        "LANG": "C.UTF-8",
        "HOME": str(folder),
        "GOOSE_PROVIDER": "openai",
        "GOOSE_MODEL": "m",
        "GOOSE_MODE": "auto",
        "GOOSE_DISABLE_KEYRING": "1",
        "GOOSE_TELEMETRY_ENABLED": "false",
        "OPENAI_HOST": model_url.removesuffix("/v1"),
        "OPENAI_API_KEY": "none",
    }


def call_agent(agent: str) -> Move:
    """Return a step in which goose's model calls an agent of Podium."""
    return calls("podium__run_agent", agent=agent, request="Do it")


@asynccontextmanager
async def open_goose(folder: Path, *script: Any) -> AsyncIterator[tuple[Any, ModelServer]]:
    """Start goose in a terminal, in a repository with agents, with a prompt."""
    write_agents(repo := folder / "repo")
    async with ModelServer(script) as server:
        environ = configure_goose(folder, server.url)
        arguments = ["run", "--interactive", "--text", "Ask Podium."]
        terminal = pexpect.spawn(find_goose(), arguments, cwd=str(repo), env=environ, timeout=TOO_LONG)
        try:
            yield terminal, server
        finally:
            await to_thread.run_sync(lambda: terminal.close(force=True))


async def test_the_model_of_goose_runs_a_team_and_its_person_answers_permission_requests(tmp_path: Path) -> None:
    script = (call_agent("pair"), call_agent("writer"), "Podium has done it.")
    async with open_goose(tmp_path, *script) as (terminal, server):
        await to_thread.run_sync(terminal.expect, r"decision \(once")
        shown = terminal.before.decode()
        terminal.send("\r")  # once is selected
        await to_thread.run_sync(terminal.expect, "Podium has done it.")

    results = [message.text for message in server.calls[-1].call.messages if message.role == "tool"]
    run = find_newest_run(tmp_path / "podium" / "podium.db")
    kinds = [type(entry.event).__name__ for entry in read_entries(tmp_path / "podium" / "podium.db", run)]
    assert results == ["Fine.", "Wrote it."]
    assert (tmp_path / "repo" / "a.txt").read_text() == "new\n"
    assert "writer requests permission:" in shown
    assert "+new" in shown
    assert "always" not in shown
    assert kinds.count("PermissionAsked") == kinds.count("PermissionAnswered") == 1
