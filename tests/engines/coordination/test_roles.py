"""Agents outside Podium's own loop take part in teams: each role has its tools, called with the official client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from anyio.abc import SocketAttribute, SocketStream
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from podium import Agent, App, Settings
from podium.core.engine import EngineSessionSpec, Finished, Piece, Text
from podium.core.scope import Scope
from podium.engines.coordination.coordination_router import PATH, open_coordination_service
from podium.engines.coordination.coordination_session import CoordinationSession, select_coordination_tools
from podium.testing import run_git as git
from podium.values.event import DecisionProposed, DiscussionEnded, Voted
from podium.workspace.relay.asgi_service import make_asgi_service

from ...patterns.test_in_worker import repo, script_block, settings, write_move
from ...patterns.test_teams import add_lead, ready_moves
from ...studio import Studio
from .test_coordination import read_text

__all__ = ("repo", "settings")

Act = Callable[[Client, set[str]], Awaitable[str]]


class ClientEngine:
    """An engine that answers each prompt with what `act` returns, after it has called tools over HTTP."""

    name = "outside"
    is_restored = False

    def __init__(self, act: Act) -> None:
        self._act = act

    @asynccontextmanager
    async def open(self, spec: EngineSessionSpec) -> AsyncIterator[ClientSession]:
        session = CoordinationSession(select_coordination_tools(spec.tools), agent=spec.agent.name)
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with open_coordination_service(session) as application, listener, anyio.create_task_group() as group:

            async def serve(stream: SocketStream) -> None:
                async with stream:
                    await make_asgi_service(application)(stream)

            group.start_soon(listener.serve, serve)
            yield ClientSession(session, listener.extra(SocketAttribute.local_port), self._act)
            group.cancel_scope.cancel()


class ClientSession:
    is_restored = False

    def __init__(self, session: CoordinationSession, port: int, act: Act) -> None:
        self._session = session
        self._url = f"http://127.0.0.1:{port}{PATH}"
        self._act = act

    @asynccontextmanager
    async def ask(self, prompt: str, turn: Scope) -> AsyncIterator[AsyncIterator[Piece]]:
        async def pieces() -> AsyncIterator[Piece]:
            found: list[Piece] = []

            async def add_piece(piece: Piece) -> None:
                found.append(piece)

            headers = {"Authorization": f"Bearer {self._session.token}"}
            async with (
                self._session.open_turn(turn, on_piece=add_piece) as calls,
                httpx2.AsyncClient(headers=headers, timeout=60) as http,
                Client(streamable_http_client(self._url, http_client=http)) as client,
            ):
                text = await self._act(client, {tool.name for tool in (await client.list_tools()).tools})
            for piece in found:
                yield piece
            yield Text(text)
            yield Finished(by_tool=calls.has_replied)

        yield pieces()


async def test_a_member_of_a_discussion_broadcasts_and_votes(studio: Studio) -> None:
    async def discuss(client: Client, names: set[str]) -> str:
        assert {"broadcast", "vote_conclude"} <= names
        await client.call_tool("broadcast", {"message": "I think tea"})
        await client.call_tool("vote_conclude", {"ready": True, "reason": "clear"})
        return ""

    studio.agent("outsider", engine="outside")
    studio.agent("b", says=ready_moves())
    add_lead(studio, "discuss", "outsider", "b", says=["go on", "tea it is"])

    async with studio.app(engines={"outside": ClientEngine(discuss)}) as app:
        result = await app.run(studio.agents["lead"], "Tea or coffee?", agents=studio.agents.values())

    assert result.text == "tea it is"
    assert ("outsider", True) in [(vote.author, vote.ready) for vote in studio.events(result, Voted)]
    assert any("[outsider, round 1]\n> I think tea" in heard for heard in studio.heard("lead"))
    assert studio.events(result, DiscussionEnded)[0].by == "consensus"


async def test_an_agent_proposes_a_decision_and_lists_decisions(studio: Studio, tmp_path: Path) -> None:
    said: list[str] = []

    async def decide(client: Client, names: set[str]) -> str:
        assert {"propose_decision", "list_decisions"} <= names
        proposal = {"topic": "Which database?", "options": ["SQLite", "PostgreSQL"]}
        said.append(read_text(await client.call_tool("propose_decision", proposal)))
        said.append(read_text(await client.call_tool("list_decisions", {})))
        return "done"

    agent = studio.agent("outsider", engine="outside", tools=("propose_decision", "list_decisions"))
    async with studio.app(engines={"outside": ClientEngine(decide)}) as app:
        result = await app.run(agent, "Decide.")

    assert result.text == "done"
    assert [event.topic for event in studio.events(result, DecisionProposed)] == ["Which database?"]
    assert all(said)


@pytest.mark.slow  # another test delegates with the same tools, from Podium's own loop
async def test_an_agent_delegates_a_task_to_a_worker_and_gets_its_result(repo: Path, settings: Settings) -> None:
    said: list[str] = []

    async def delegate(client: Client, names: set[str]) -> str:
        async def call(name: str, **arguments: str) -> None:
            said.append(read_text(await client.call_tool(name, arguments)))

        task = script_block(write_move("by-worker.txt"), "The worker is done.")
        await call("delegate_task", branch="feat/x", task=task)
        await call("get_worker_result", branch="feat/x")
        await call("check_workers")
        await call("cancel_worker", branch="feat/x")
        return "All is done."

    tools = ("delegate_task", "check_workers", "get_worker_result", "cancel_worker")
    boss = Agent(name="boss", engine="outside", tools=tools)

    async with App(settings, environ={}, engines={"outside": ClientEngine(delegate)}) as app:
        result = await app.run(boss, "Have it done.", repo=repo)

    assert result.text == "All is done."
    assert said[0].startswith("Started a worker on feat/x")
    assert said[1].startswith("The worker is done.")
    assert said[2:] == ["feat/x: succeeded", "The worker on feat/x has already ended (succeeded)."]
    assert git(repo, "show", "feat/x:by-worker.txt") == "by-worker.txt\n"
