"""Servers over HTTP that drop the connection, restart, answer late or in pieces, forget sessions or refuse a token."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from aiohttp import web

from podium.mcp_client.server_table import McpServer, McpTimeouts

from .bench import Bench, call_tool, find_tool
from .http_server import (
    Answer,
    HttpServer,
    answer_at_once,
    answer_in_pieces,
    answer_with_status,
    drop_after,
    drop_connection,
    run_http_server,
)

SAY = "mcp__played__say"


def make_server(http: HttpServer, **headers: str) -> McpServer:
    return McpServer(name="played", url=http.url, headers=headers)


async def test_an_answer_that_arrives_in_pieces_is_read_as_a_whole(bench: Bench) -> None:
    async with run_http_server() as http, bench.servers(make_server(http)) as servers:
        say = await find_tool(servers, SAY)
        http.answers = [answer_in_pieces, answer_in_pieces]

        answers = [await call_tool(say, text=text) for text in ("größer", "again")]

    assert [(answer.text, answer.is_error) for answer in answers] == [("größer", False), ("again", False)]
    assert http.started == 1


@pytest.mark.parametrize(
    "answer",
    [
        drop_connection,
        drop_after(b""),
        drop_after(b": hello\n\n"),
        drop_after(b'event: message\ndata: {"jsonrpc": "2.'),
    ],
    ids=["before the answer", "after the headers", "after a comment", "in an event"],
)
async def test_a_connection_that_is_dropped_in_a_call_fails_the_call_and_is_opened_again(
    bench: Bench, answer: Answer
) -> None:
    async with run_http_server() as http, bench.servers(make_server(http)) as servers:
        say = await find_tool(servers, SAY)
        http.answers = [answer]

        lost = await call_tool(say, text="lost")
        answers = [await call_tool(say, text=text) for text in ("second", "third")]

    assert lost.is_error
    assert [(one.text, one.is_error) for one in answers] == [("second", False), ("third", False)]
    assert http.calls == ["lost", "second", "third"], "a call whose answer is lost must not be repeated"


async def test_a_server_that_forgot_the_session_gets_a_new_one_at_the_next_call(bench: Bench) -> None:
    async with run_http_server() as http, bench.servers(make_server(http)) as servers:
        say = await find_tool(servers, SAY)
        http.sessions.clear()

        lost = await call_tool(say, text="lost")
        answers = [await call_tool(say, text=text) for text in ("second", "third")]

    assert lost.is_error
    assert [(one.text, one.is_error) for one in answers] == [("second", False), ("third", False)]
    assert (http.started, http.calls) == (2, ["second", "third"])


async def test_a_server_that_restarts_between_calls_is_found_again(bench: Bench) -> None:
    async with run_http_server() as first:
        server, port = make_server(first), urlsplit(first.url).port or 0
        servers = bench.servers(server)
        await servers.__aenter__()
        say = await find_tool(servers, SAY)
        before = await call_tool(say, text="before")
    async with run_http_server(port) as second:
        lost = await call_tool(say, text="lost")
        after = await call_tool(say, text="after")
        await servers.__aexit__(None, None, None)

    assert (before.text, lost.is_error, after.text) == ("before", True, "after")
    assert (second.started, second.calls) == (1, ["after"])


async def test_a_late_answer_is_not_taken_for_the_answer_to_the_next_call(bench: Bench) -> None:
    released = anyio.Event()

    async def answer_late(request: web.Request, reply: dict[str, Any]) -> web.StreamResponse:
        await released.wait()
        return await answer_at_once(request, reply)

    async with run_http_server() as http, bench.servers(make_server(http)) as servers:
        say = await find_tool(servers, SAY)
        http.answers = [answer_late]

        with anyio.move_on_after(0.1) as scope:
            await call_tool(say, text="late")
        released.set()
        answers = [await call_tool(say, text=text) for text in ("second", "third")]

    assert scope.cancelled_caught
    assert [answer.text for answer in answers] == ["second", "third"]
    assert http.started == 1


async def test_a_server_that_does_not_list_its_tools_in_time_cannot_be_used(bench: Bench) -> None:
    async def never(request: web.Request, reply: dict[str, Any]) -> web.StreamResponse:
        await anyio.sleep_forever()
        raise AssertionError

    async with run_http_server(listings=[never]) as http:
        async with bench.servers(make_server(http), limits=McpTimeouts(start=0.3)) as servers:
            found = await servers.acting([SAY])

    assert found == []
    assert len(bench.notices) == 1
    assert "0.3 s" in bench.notices[0]


async def test_a_server_that_refuses_the_token_gives_a_notice_with_the_status_and_without_the_token(
    bench: Bench,
) -> None:
    async with run_http_server(token="right") as http:
        server = make_server(http, Authorization="Bearer ${SEARCH_TOKEN}")
        async with bench.servers(server, environ={"SEARCH_TOKEN": "canary-123456"}) as servers:
            found = await servers.acting([SAY])

    assert found == []
    assert len(bench.notices) == 1
    assert "401" in bench.notices[0]
    assert "canary" not in bench.notices[0]


async def test_a_token_that_expires_fails_the_calls_with_the_status_and_counts_again_when_it_is_accepted(
    bench: Bench,
) -> None:
    async with run_http_server(token="right") as http:
        server = make_server(http, Authorization="Bearer right")
        async with bench.servers(server) as servers:
            say = await find_tool(servers, SAY)
            http.token = "newer"
            refused = await call_tool(say, text="refused")
            http.token = "right"
            accepted = await call_tool(say, text="accepted")

    assert refused.is_error
    assert "401" in refused.text
    assert (accepted.text, accepted.is_error) == ("accepted", False)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_call_that_a_server_refuses_fails_with_the_status_and_the_next_one_is_made(
    bench: Bench, status: int
) -> None:
    async with run_http_server() as http, bench.servers(make_server(http)) as servers:
        say = await find_tool(servers, SAY)
        http.answers = [answer_with_status(status)]

        refused = await call_tool(say, text="refused")
        answer = await call_tool(say, text="next")

    assert refused.is_error
    assert str(status) in refused.text
    assert (answer.text, answer.is_error) == ("next", False)
