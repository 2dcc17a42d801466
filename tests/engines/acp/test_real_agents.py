"""Real coding agents with a scripted model. They run only if they are on the PATH: pytest -m engines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from podium import Agent, App, Result, Settings
from podium.engines.acp.agent_program import AGENT_PROGRAMS
from podium.testing import ModelServer
from podium.values.agent import Permissions

pytestmark = [pytest.mark.engines, pytest.mark.slow]

WRITES = {
    "copilot": ("create", "path", "file_text"),
    "opencode": ("write", "filePath", "content"),
    "claude": ("Write", "file_path", "content"),
}
"""The name of each agent's tool that writes files, and of its arguments."""


@pytest.fixture(params=WRITES)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if AGENT_PROGRAMS[name].find_executable(None, os.environ["PATH"]) is None:
        pytest.skip(f"{name} is not installed")
    return name


async def write_file(kind: str, folder: Path, **rules: tuple[str, ...]) -> Result:
    """Let an agent write made.txt under these rules, and return the result."""
    tool, path, content = WRITES[kind]
    (repo := folder / "repo").mkdir()
    arguments: dict[str, Any] = {path: str(repo / "made.txt"), content: "hello"}
    script: list[Any] = [
        {"says": "I write.", "calls": [{"name": tool, "arguments": arguments}]},
        "All is said.",
        "It is.",
    ]
    async with ModelServer(script) as server:
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "OPENAI_API_KEY": "sk-not-a-key",
            "ANTHROPIC_API_KEY": "sk-not-a-key",
            "OPENAI_BASE_URL": server.url,
            "ANTHROPIC_BASE_URL": server.url.removesuffix("/v1"),
        }
        settings = structs.replace(Settings.load({}, home=folder / "home"), permissions=Permissions(**rules))
        model = "anthropic:claude-sonnet-5-5" if kind == "claude" else "openai:m"
        async with App(settings, environ=environ) as app:
            return await app.run(Agent(name="coder", engine=kind, model=model), "Write it.", repo=repo)


async def test_what_a_rule_allows_is_written(kind: str, tmp_path: Path) -> None:
    result = await write_file(kind, tmp_path, allow=("Edit",))

    assert result.text == "All is said."
    assert (tmp_path / "repo" / "made.txt").read_text() == "hello"


async def test_what_a_rule_denies_is_not_written_and_the_agent_goes_on(kind: str, tmp_path: Path) -> None:
    result = await write_file(kind, tmp_path, deny=("Edit",))

    assert "[not permitted]" in result.text
    assert result.text.startswith("All is said.")
    assert not (tmp_path / "repo" / "made.txt").exists()
