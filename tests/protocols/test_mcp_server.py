"""`podium mcp`, driven by the official MCP client over standard input and output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group, fail_after, sleep
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult, TextContent

from podium import Settings
from podium.protocols import mcp_run_call
from podium.protocols.client_runs import ClientRuns
from podium.protocols.mcp_server import PodiumTools, build_server
from podium.store.mailbox import post_to_mailbox
from podium.store.reader import StoreReader
from podium.store.request_list import list_open_requests
from podium.testing import read_entries
from podium.values.actor import Actor
from podium.values.event import PermissionAnswered, QuestionAnswered, RunEnded

from .conftest import WRITE, find_newest_run, write_agent, write_agents

TOO_LONG = 60.0


@asynccontextmanager
async def connect(folder: Path, **options: Any) -> AsyncIterator[Client]:
    """Start `podium mcp` in a repository and connect the official client to it."""
    write_agents(folder)
    environment = {**os.environ, "PODIUM_HOME": str(folder / "home")}
    server = StdioServerParameters(command=sys.executable, args=["-m", "podium", "mcp"], env=environment, cwd=folder)
    with fail_after(TOO_LONG):
        async with Client(stdio_client(server), **options) as client:
            yield client


def read_text(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


async def wait_for_request(store: Path, about: str = "") -> Any:
    """Wait for a request that contains these words, and return it."""
    found: list[Any] = []
    while not found:
        await sleep(0.02)
        found = [one for one in list_open_requests(store) if about in str(one.asked)] if store.exists() else []
    return found[0]


async def approve_in_inbox(store: Path, about: str = "") -> None:
    """Wait for a request that contains these words, and approve it."""
    found = await wait_for_request(store, about)
    given = PermissionAnswered(id=found.asked.id, decision="once", by="ada", channel="terminal")
    post_to_mailbox(store, found.summary.id, given, ref=given.id)


def find_ends(store: Path, run: str) -> list[RunEnded]:
    return [entry.event for entry in read_entries(store, run) if isinstance(entry.event, RunEnded)]


def answer(decisions: list[str], seen: list[str]) -> Callable[..., Any]:
    async def ask(_: Any, params: ElicitRequestParams) -> ElicitResult:
        seen.append(params.message)
        return ElicitResult(action="accept", content={"decision": decisions.pop(0)})

    return ask


@asynccontextmanager
async def connect_in_process(folder: Path, **options: Any) -> AsyncIterator[Client]:
    """Connect the official client to a server in this process."""
    write_agents(folder)

    def load() -> Settings:
        return Settings.load({}, repo=folder, home=folder / "home")

    with fail_after(TOO_LONG):
        async with create_task_group() as tasks:
            runs = ClientRuns(tasks, by=Actor(name="ada", channel="mcp"), tell=print)
            async with Client(build_server(PodiumTools(folder, runs, load)), **options) as client:
                yield client


async def test_the_tools_list_agents_run_one_and_report_on_it(tmp_path: Path) -> None:
    seen: list[str | None] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append(message)

    async with connect(tmp_path) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        agents = await client.call_tool("list_agents", {})
        said = await client.call_tool("run_agent", {"agent": "pair", "request": "Hi"}, progress_callback=note)
        run = find_newest_run(tmp_path / "home" / "podium.db")
        result = await client.call_tool("get_result", {"run": run})
        wrong = await client.call_tool("run_agent", {"agent": "nobody", "request": "Hi"})
        failed = await client.call_tool("run_agent", {"agent": "broken", "request": "Hi"})
        unknown = await client.call_tool("get_result", {"run": "ffff"})
        workers = await client.call_tool("check_workers", {})

    assert names == ["list_agents", "run_agent", "delegate_task", "check_workers", "get_result", "pending_approvals"]
    assert {"name": "pair", "description": "The pair.", "is_team": True} in agents.structured_content["result"]
    assert "Fine." in read_text(said)
    assert "greeter started" in seen
    assert result.structured_content["state"] == "succeeded"
    assert "Fine." in result.structured_content["answer"]
    assert wrong.is_error
    assert "nobody" in read_text(wrong)
    assert failed.is_error
    assert "no such luck" in read_text(failed)
    assert "ffff" in read_text(unknown)
    assert workers.structured_content == {"result": []}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_client_with_elicitation_shows_permission_requests_to_its_person(tmp_path: Path, mode: str) -> None:
    seen: list[str] = []
    asking = answer(["deny", "once"], seen)
    async with connect(tmp_path, mode=mode, elicitation_callback=asking) as client:
        await client.call_tool("run_agent", {"agent": "writer", "request": "Write"})
        assert not (tmp_path / "a.txt").exists()
        said = await client.call_tool("run_agent", {"agent": "writer", "request": "Write"})

    assert read_text(said) == "Wrote it."
    assert len(seen) == 2
    assert "+new" in seen[0]
    assert (tmp_path / "a.txt").read_text() == "new\n"


@pytest.mark.parametrize("mode", [pytest.param("legacy", marks=pytest.mark.slow), "auto"])
async def test_a_client_with_elicitation_shows_the_requests_of_workers_once(tmp_path: Path, mode: str) -> None:
    seen: list[str] = []
    asking = answer(["deny", "once"], seen)
    async with connect(tmp_path, mode=mode, elicitation_callback=asking) as client:
        other = {"calls": [{"name": "write_file", "arguments": {"path": "b.txt", "content": "new\n"}}]}
        write_agent(tmp_path, "scribe", WRITE, other, "Tried twice.", tools=["write_file"], isolation="process")
        write_agent(tmp_path, "office", team={"mode": "sequential", "members": ["scribe"]})
        commit = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"]
        subprocess.run(commit, cwd=tmp_path, check=True)
        said = await client.call_tool("run_agent", {"agent": "office", "request": "Write"})

    assert "Tried twice." in read_text(said)
    assert ["a.txt" in text for text in seen] == [True, False]
    assert all(text.startswith("scribe (worker podium/") for text in seen)


async def test_an_answer_with_a_number_is_not_taken_for_the_number_of_a_choice(tmp_path: Path) -> None:
    async def ask(*_: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"answer": "2"})

    asking = {"calls": [{"name": "ask_person", "arguments": {"question": "Retries?", "choices": ["3", "5"]}}]}
    async with connect_in_process(tmp_path, elicitation_callback=ask) as client:
        write_agent(tmp_path, "counter", asking, "Noted.", tools=["ask_person"])
        await client.call_tool("run_agent", {"agent": "counter", "request": "Ask"})

    store = tmp_path / "home" / "podium.db"
    entries = read_entries(store, find_newest_run(store))
    assert [entry.event.text for entry in entries if isinstance(entry.event, QuestionAnswered)] == ["2"]


async def test_a_call_that_has_asked_its_client_often_leaves_further_requests_in_the_inbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_run_call, "MOST_ROUNDS", 1)
    seen: list[str] = []
    other = {"calls": [{"name": "write_file", "arguments": {"path": "b.txt", "content": "new\n"}}]}
    async with (
        connect_in_process(tmp_path, elicitation_callback=answer(["once"], seen)) as client,
        create_task_group() as group,
    ):
        write_agent(tmp_path, "scribe", WRITE, other, "Wrote both.", tools=["write_file"])

        group.start_soon(approve_in_inbox, tmp_path / "home" / "podium.db", "b.txt")
        said = await client.call_tool("run_agent", {"agent": "scribe", "request": "Write"})

    assert read_text(said) == "Wrote both."
    assert len(seen) == 1


async def test_a_client_without_elicitation_waits_for_the_inbox(tmp_path: Path) -> None:
    store = tmp_path / "home" / "podium.db"
    async with connect_in_process(tmp_path) as client, create_task_group() as group:

        async def approve() -> None:
            found = await wait_for_request(store)
            listed = await client.call_tool("pending_approvals", {})
            assert [one["id"] for one in listed.structured_content["result"]] == [found.asked.id]
            await approve_in_inbox(store)

        group.start_soon(approve)
        said = await client.call_tool("run_agent", {"agent": "writer", "request": "Write"})

    assert read_text(said) == "Wrote it."


async def test_a_cancelled_call_stops_its_run(tmp_path: Path) -> None:
    store = tmp_path / "home" / "podium.db"
    async with connect_in_process(tmp_path) as client:
        async with create_task_group() as group:
            group.start_soon(client.call_tool, "run_agent", {"agent": "writer", "request": "Write"})
            run = (await wait_for_request(store)).summary.id
            group.cancel_scope.cancel()
        while not (ended := find_ends(store, run)):  # noqa: ASYNC110 - the store is a file
            await sleep(0.02)

    assert [one.outcome for one in ended] == ["cancelled"]


async def test_a_run_can_be_resumed_when_its_client_is_gone(tmp_path: Path) -> None:
    store = tmp_path / "home" / "podium.db"
    environment = {**os.environ, "PODIUM_HOME": str(tmp_path / "home")}
    write_agents(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-m", "podium", "mcp"],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    call = {"name": "run_agent", "arguments": {"agent": "writer", "request": "Write"}}
    for message in (
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": call},
    ):
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    process.stdin.write(b"not JSON\n[1]\n")
    process.stdin.flush()
    run = (await wait_for_request(store)).summary.id
    process.stdin.close()

    assert process.wait(20) == 0
    with StoreReader(store) as reader:
        assert reader.read_summary(run).phase == "resumable"


@pytest.mark.slow
async def test_a_delegated_task_is_done_by_a_worker_on_its_branch(tmp_path: Path) -> None:
    async with connect(tmp_path) as client:
        commit = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"]
        subprocess.run(commit, cwd=tmp_path, check=True)
        task = {"branch": "feat/x", "task": "Greet", "agent": "greeter"}
        begun = await client.call_tool("delegate_task", task)
        done = await client.call_tool("get_result", {"run": "feat/x", "wait_seconds": 30})
        [worker] = (await client.call_tool("check_workers", {})).structured_content["result"]

    assert begun.structured_content["branch"] == "feat/x"
    assert done.structured_content["answer"] == "Hello there, friend."
    assert (worker["branch"], worker["state"]) == ("feat/x", "complete")
