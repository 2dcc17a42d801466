"""The coordination tools as an MCP server: called with the official client, over HTTP and on stdio."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio.abc import SocketAttribute, SocketStream
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

from podium.core.engine import Tool, ToolAnswer
from podium.core.scope import Scope
from podium.core.timeline import Timeline
from podium.engines.coordination.coordination_router import PATH, open_coordination_service
from podium.engines.coordination.coordination_session import (
    MOST_REFUSALS,
    TOKEN_VARIABLE,
    CoordinationSession,
    build_shim_command,
    select_coordination_tools,
)
from podium.store.run_store import RunStore
from podium.testing import read_events
from podium.tools.toolset import ask_person_tool, report_status_tool
from podium.values.errors import AgentFailed, Failure
from podium.values.event import (
    ActionRefused,
    QuestionAnswered,
    QuestionAsked,
    StatusReported,
    ToolAnswered,
    ToolCalled,
    ToolUse,
)
from podium.workspace.relay.asgi_service import make_asgi_service

from ...tools.test_ask_person import wait_question

NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}


@dataclass
class Desk:
    """A session that is served over HTTP, its timeline and its store."""

    session: CoordinationSession
    timeline: Timeline
    url: str
    path: Path

    @property
    def turn(self) -> Scope:
        return Scope(self.timeline, "lead/turn#1", operation="lead", digest="d")

    def events(self, *kinds: type[Any]) -> list[Any]:
        return read_events(self.path, "r", *kinds)

    @asynccontextmanager
    async def connect(self, token: str | None = None) -> AsyncIterator[Client]:
        """Connect the official client."""
        headers = {"Authorization": f"Bearer {self.session.token if token is None else token}"}
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(self.url, http_client=http)) as client,
        ):
            yield client


@asynccontextmanager
async def serve(path: Path, *tools: Tool, poll_seconds: float = 45.0) -> AsyncIterator[Desk]:
    session = CoordinationSession(tools, agent="goose", poll_seconds=poll_seconds)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with RunStore(path) as store, open_coordination_service(session) as application:
        answer = make_asgi_service(application)

        async def serve_connection(stream: SocketStream) -> None:
            async with stream:
                with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await answer(stream)

        async with listener, anyio.create_task_group() as group:
            group.start_soon(listener.serve, serve_connection)
            url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}{PATH}"
            timeline = Timeline("r", store.begin_run("r"))
            with anyio.fail_after(30):
                yield Desk(session, timeline, url, path)
                await timeline.wait_written()
            group.cancel_scope.cancel()


def read_text(result: Any) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def test_the_official_client_lists_and_calls_the_tools(tmp_path: Path) -> None:
    async with serve(tmp_path / "s.db", report_status_tool(), ask_person_tool("deny")) as desk:
        async with desk.session.open_turn(desk.turn), desk.connect() as client:
            listed = await client.list_tools()
            done = await client.call_tool("report_status", {"text": "half done"})
            wrong = await client.call_tool("report_status", {"text": 5})
            unknown = await client.call_tool("no_such_tool", {})

        assert await desk.session.wait_listed(0)
    assert [tool.name for tool in listed.tools] == ["report_status", "ask_person", "wait_for_result"]
    assert listed.tools[0].input_schema["required"] == ["text"]
    assert (read_text(done), done.is_error) == ("noted", False)
    assert (wrong.is_error, unknown.is_error) == (True, True)
    assert [event.text for event in desk.events(StatusReported)] == ["half done"]
    assert len(desk.events(ToolCalled)) == len(desk.events(ToolAnswered)) == 3
    assert desk.events(ToolCalled)[0].action.agent == "goose"


async def test_a_question_is_polled_until_a_person_answers(tmp_path: Path) -> None:
    async with serve(tmp_path / "s.db", ask_person_tool(None), poll_seconds=0.2) as desk:
        async with desk.session.open_turn(desk.turn), desk.connect() as client:
            first = read_text(await client.call_tool("ask_person", {"question": "Which?"}))
            again = read_text(await client.call_tool("ask_person", {"question": "Which?"}))
            await desk.timeline.wait_written()
            (question,) = desk.events(QuestionAsked)
            still = read_text(await client.call_tool("wait_for_result", {"id": "w1"}))

            desk.turn.record_each_time(QuestionAnswered(id=question.id, text="the blue one"))
            answer = read_text(await client.call_tool("wait_for_result", {"id": "w1"}))
            unknown = await client.call_tool("wait_for_result", {"id": "w9"})

    assert first == again == still == 'Not finished yet. Call wait_for_result with {"id": "w1"} to continue waiting.'
    assert answer == "the blue one"
    assert unknown.is_error


async def test_an_agent_that_starts_again_does_not_ask_again(tmp_path: Path) -> None:
    async with serve(tmp_path / "s.db", ask_person_tool(None), poll_seconds=5) as desk:
        async with desk.session.open_turn(desk.turn), desk.connect() as client:
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "ask_person", {"question": "Which?"})
                question = await wait_question(desk.path)
                desk.turn.record_each_time(QuestionAnswered(id=question.id, text="blue"))

        async with desk.session.open_turn(desk.turn), desk.connect() as client:
            answer = await client.call_tool("ask_person", {"question": "Which?"})

        await desk.timeline.wait_written()
        assert read_text(answer) == "blue"
        assert len(desk.events(QuestionAsked)) == 1


async def test_a_call_with_no_token_or_another_agents_token_is_refused_and_on_record(tmp_path: Path) -> None:
    other = CoordinationSession((), agent="other")
    forged = [{}, *({"Authorization": text} for text in (f"Bearer {other.token}", "Bearer x", "Basic x", "Bearer é"))]
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "report_status", "arguments": {}}}
    async with serve(tmp_path / "s.db", report_status_tool()) as desk:
        async with desk.session.open_turn(desk.turn), httpx2.AsyncClient() as http:
            statuses = []
            for headers in forged:
                encoded = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
                statuses.append((await http.post(desk.url, json=call, headers=encoded)).status_code)
            for _ in range(2 * MOST_REFUSALS):
                await http.post(desk.url, json=call)

    assert statuses == [401, 403, 403, 403, 403]
    refused = desk.events(ActionRefused)
    assert len(refused) == MOST_REFUSALS
    assert (refused[0].action.agent, refused[0].action.tool) == ("goose", "coordination")
    assert refused[0].reason == "a call to the coordination tools was refused: the request has no token"
    assert "the token does not belong to this agent's session" in refused[1].reason
    assert desk.events(ToolCalled) == []


async def test_a_call_outside_a_turn_does_nothing(tmp_path: Path) -> None:
    async with serve(tmp_path / "s.db", report_status_tool()) as desk:
        async with desk.connect() as client:
            done = await client.call_tool("report_status", {"text": "x"})

    assert done.is_error
    assert desk.events(StatusReported) == []


async def test_a_tool_that_ends_the_turn_says_so_to_the_engine(tmp_path: Path) -> None:
    async def end_turn(call: ToolUse, scope: Scope) -> ToolAnswer:
        return ToolAnswer(text="noted", ends_turn=True, is_reply=True)

    tool = Tool(name="handoff_step", description="d", parameters=NO_ARGUMENTS, answer=end_turn)
    async with serve(tmp_path / "s.db", tool) as desk:
        async with desk.session.open_turn(desk.turn) as turn, desk.connect() as client:
            await client.call_tool("handoff_step", {})

            assert (turn.is_ended, turn.has_replied) == (True, True)


async def test_a_failure_of_podium_ends_the_turn(tmp_path: Path) -> None:
    async def run_out(call: ToolUse, scope: Scope) -> ToolAnswer:
        raise AgentFailed(Failure(kind="budget", agent="goose", message="its budget is used up"))

    tool = Tool(name="spend", description="d", parameters=NO_ARGUMENTS, answer=run_out)
    async with serve(tmp_path / "s.db", tool) as desk:
        with pytest.raises(AgentFailed, match="its budget is used up"):
            async with desk.session.open_turn(desk.turn):
                await desk.session.call_tool("spend", {})


async def test_calls_of_a_turn_are_cancelled_when_it_ends(tmp_path: Path) -> None:
    cancelled = anyio.Event()

    async def wait_long(call: ToolUse, scope: Scope) -> ToolAnswer:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()
        raise AssertionError

    tool = Tool(name="wait_long", description="d", parameters=NO_ARGUMENTS, answer=wait_long)
    async with serve(tmp_path / "s.db", tool, poll_seconds=0.05) as desk:
        async with desk.session.open_turn(desk.turn):
            await desk.session.call_tool("wait_long", {})

        assert cancelled.is_set()


async def test_the_stdio_server_passes_calls_on(tmp_path: Path) -> None:
    async with serve(tmp_path / "s.db", report_status_tool(), ask_person_tool(None), poll_seconds=0.5) as desk:
        program, *args = build_shim_command(desk.url)
        server = StdioServerParameters(command=program, args=args, env={TOKEN_VARIABLE: desk.session.token})
        async with desk.session.open_turn(desk.turn), Client(stdio_client(server)) as client:
            listed = await client.list_tools()
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "ask_person", {"question": "Which?"})
                done = await client.call_tool("report_status", {"text": "over stdio"})

    assert [tool.name for tool in listed.tools] == ["report_status", "ask_person", "wait_for_result"]
    assert read_text(done) == "noted"
    assert [event.text for event in desk.events(StatusReported)] == ["over stdio"]


async def test_the_stdio_server_with_a_forged_token_is_refused(tmp_path: Path) -> None:
    async with serve(tmp_path / "s.db", report_status_tool()) as desk:
        argv = build_shim_command(desk.url)
        message = b'{"jsonrpc": "2.0", "id": 7, "method": "tools/list"}\nnot json\n[]\n'
        async with desk.session.open_turn(desk.turn):
            done = await anyio.run_process(argv, input=message, env={**os.environ, TOKEN_VARIABLE: "forged"})

    assert done.stdout.count(b"\n") == 1
    assert b'"id": 7' in done.stdout
    assert b"Podium rejected the request (HTTP status 403)" in done.stdout
    assert len(desk.events(ActionRefused)) == 2


def test_a_coding_agent_is_not_offered_tools_for_files_and_commands() -> None:
    tools = [
        Tool(name=name, description="", parameters=NO_ARGUMENTS, answer=report_status_tool().answer)
        for name in ("read_file", "bash", "report_status", "delegate_task", "cast_ballot", "mcp__files__read")
    ]

    offered = [tool.name for tool in select_coordination_tools(tools)]

    assert offered == ["report_status", "delegate_task", "cast_ballot", "mcp__files__read"]
