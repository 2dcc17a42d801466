"""`podium agents show`: one agent, and the tokens that its prompt and tools take in every model call."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from anyio import to_thread

from podium.testing import ModelServer

from .conftest import Desk


def write_agent(desk: Desk, name: str, front: str, prompt: str = "You work.") -> None:
    folder = desk.repo / ".podium" / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(f"---\ndescription: {name}\n{front}\n---\n{prompt}\n", encoding="utf-8")


def measure(desk: Desk, name: str) -> dict[str, Any]:
    said = desk.invoke("agents", "show", name, "--tokens", "--json")
    assert said.exit_code == 0, said.stderr
    found: dict[str, Any] = json.loads(said.stdout)["tokens"]
    return found


def test_an_agent_is_shown_with_its_tools_and_prompt(desk: Desk) -> None:
    write_agent(desk, "desk", "tools: [Read, Grep]\nhandoff: writer\nmodel: haiku", "Be brief.")
    write_agent(desk, "writer", "")

    said = desk.invoke("agents", "show", "desk")
    fields = json.loads(desk.invoke("agents", "show", "desk", "--json").stdout)

    assert said.stdout.splitlines() == [
        "desk  desk",
        "repo, .podium/agents/desk.md",
        "engine model, model haiku",
        "tools: Read, Grep",
        "works with: writer",
        "",
        "Be brief.",
    ]
    assert (fields["tools"], fields["uses"], "tokens" in fields) == (["Read", "Grep"], ["writer"], False)


@pytest.mark.slow
async def test_the_estimate_is_that_of_the_call_which_a_model_gets(desk: Desk) -> None:
    write_agent(desk, "desk", "tools: [Read]", "x" * 401)
    async with ModelServer(["done"]) as server:
        variables = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-any-444444"}
        await to_thread.run_sync(lambda: desk.run_podium("run", "desk", "go", "--quiet", **variables))
    [received] = server.calls

    tokens = await to_thread.run_sync(measure, desk, "desk")

    sizes = {
        tool.name: len(tool.name) + len(tool.description) + len(msgspec.json.encode(tool.parameters))
        for tool in received.call.tools
    }
    system = len(received.call.system)
    assert {tool["name"]: tool["tokens"] for tool in tokens["tools"]} == {
        name: -(-size // 4) for name, size in sizes.items()
    }
    assert tokens["system"] == -(-system // 4) >= 101
    assert tokens["total"] == -(-(system + sum(sizes.values())) // 4)


@pytest.mark.parametrize(
    ("front", "tools"),
    [
        ("router: {destinations: [answer, worker]}", {"route_to"}),
        ("agents: [answer]\ntools: []", {"answer"}),
        ("advisors: [answer]\ntools: [Grep]", {"grep"}),
        ("team: {mode: orchestrate, members: [answer]}", set()),
    ],
)
def test_tools_that_a_pattern_adds_are_counted_too(desk: Desk, front: str, tools: set[str]) -> None:
    write_agent(desk, "lead", front)

    found = {tool["name"] for tool in measure(desk, "lead")["tools"]}

    assert tools <= found
    assert "edit_file" not in found


def test_nothing_is_started_or_stored_and_what_is_not_counted_is_named(desk: Desk) -> None:
    marker = desk.home / "started"
    (desk.home / "config.yaml").write_text(f"mcpServers: {{tracker: {{command: touch, args: ['{marker}']}}}}\n")
    write_agent(desk, "desk", "tools: [Read, mcp__tracker__find]")

    said = desk.invoke("agents", "show", "desk", "--tokens")

    assert said.exit_code == 0, said.stderr
    assert "estimated at 4 characters per token" in said.stdout
    assert said.stdout.splitlines()[-1].endswith("were not started: mcp__tracker__find")
    assert not marker.exists()
    assert not desk.store.exists()


def test_a_lead_that_is_not_called_itself_is_told(desk: Desk) -> None:
    write_agent(desk, "lead", "team: {mode: broadcast, members: [answer, worker]}")

    said = desk.invoke("agents", "show", "lead", "--tokens")

    assert said.stdout == "lead: not measured, because the agent itself made no model call in a trial run\n"


def test_an_unknown_agent_is_one_sentence(desk: Desk) -> None:
    said = desk.invoke("agents", "show", "nobody", "--tokens")

    assert said.exit_code == 2
    assert said.stderr.startswith('podium: agent "nobody" not found; available: ')
