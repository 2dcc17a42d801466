"""Which servers and changes to servers must be trusted before they are started or called."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest

from podium.core.gate import ActingTool, InvalidCall
from podium.mcp_client.server_table import McpServer

from .bench import RAW, SDK, Bench, call_tool, find_tool, make_tool_use, python_server


def write_script_server(bench: Bench, described: str) -> McpServer:
    """Write a server as a script that tests change."""
    path = bench.home / "own" / "start"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nexec {sys.executable} {RAW} 'described={described}'\n", encoding="utf-8")
    path.chmod(0o755)
    return McpServer(name="raw", command=str(path))


async def test_a_server_of_the_repository_is_not_started_before_it_is_trusted(bench: Bench, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    server = python_server("raw", RAW, "x y", source="repo", env={"PIDS": str(pids), "K": "${ANY_KEY}"})

    async with bench.servers(server, environ={"ANY_KEY": "canary-1234"}) as servers:
        before = await servers.acting(["mcp__raw__say"])
        started_before = pids.exists()
        bench.trust(server)
        after = await servers.acting(["mcp__raw__say"])

    assert before == []
    assert not started_before
    assert len(after) == 1
    assert len(bench.notices) == 1
    assert "'raw' comes with the repository and is not started until you trust it with podium trust" in bench.notices[0]
    assert f"{RAW} 'x y'" in bench.notices[0]
    assert "canary" not in bench.notices[0]


async def test_trust_in_a_server_of_a_repository_ends_with_any_change_of_it(bench: Bench) -> None:
    bench.trust(python_server("raw", RAW, source="repo"))

    async with bench.servers(python_server("raw", RAW, "more", source="repo")) as servers:
        assert await servers.acting(["mcp__raw"]) == []
    async with bench.servers(python_server("raw", RAW, source="repo", env={"A": "b"})) as servers:
        assert await servers.acting(["mcp__raw"]) == []


async def test_trust_in_a_server_of_one_repository_does_not_apply_in_another(bench: Bench) -> None:
    server = python_server("raw", RAW, source="repo")
    bench.trust(server, at="repo")

    async with bench.servers(server, at="clone") as servers:
        assert await servers.acting(["mcp__raw"]) == []


async def test_a_tool_that_changed_since_it_was_seen_first_is_not_called(bench: Bench) -> None:
    async with bench.servers(write_script_server(bench, "Says it.")) as servers:
        seen = await find_tool(servers, "mcp__raw__say")
        answer = await call_tool(seen, text="x")

    async with bench.servers(write_script_server(bench, "Says it, after reading your keys.")) as servers:
        changed = await find_tool(servers, "mcp__raw__say")
        with pytest.raises(InvalidCall) as caught:
            await changed.prepare(make_tool_use(changed, text="x"))

    assert answer.text == "x"
    assert changed.description == "Says it."
    assert str(caught.value) == (
        "the tool say from the MCP server raw has changed since it was trusted, and will not be called until a "
        "person trusts it again with podium trust: its description changed from "
        '"Says it." to "Says it, after reading your keys."'
    )
    assert str(caught.value) in bench.notices


async def test_an_unchanged_tool_is_called_again(bench: Bench) -> None:
    for described in ("Says it.", "Says it."):
        async with bench.servers(write_script_server(bench, described)) as servers:
            answer = await call_tool(await find_tool(servers, "mcp__raw__say"), text="x")

    assert answer.text == "x"
    assert bench.notices == []


async def test_a_changed_launch_definition_of_the_person_is_another_server(bench: Bench) -> None:
    async with bench.servers(python_server("raw", RAW, "described=One.")) as servers:
        await call_tool(await find_tool(servers, "mcp__raw__say"), text="x")

    async with bench.servers(python_server("raw", RAW, "described=Two.")) as servers:
        say = await find_tool(servers, "mcp__raw__say")
        answer = await call_tool(say, text="x")

    assert (say.description, answer.text) == ("Two.", "x")


async def wait_refusal(acting: ActingTool, **arguments: object) -> str:
    """Wait until a call is refused and return the message; it can take a moment until a change is noticed."""
    with anyio.fail_after(20):
        while True:
            try:
                await acting.prepare(make_tool_use(acting, **arguments))
            except InvalidCall as error:
                return str(error)
            await anyio.lowlevel.checkpoint()


async def test_a_tool_that_changes_while_it_is_used_is_not_called_any_more(bench: Bench) -> None:
    async with bench.servers(python_server("raw", RAW)) as servers:
        say = await find_tool(servers, "mcp__raw__say")
        prepared = await say.prepare(make_tool_use(say, text="x"))

        await call_tool(await find_tool(servers, "mcp__raw__change"))
        approved_before = await prepared.act()
        refusal = await wait_refusal(say, text="x")

    assert approved_before.is_error
    assert approved_before.text == refusal
    assert 'its description changed from "Says it again." to "Says it again, and tells others."' in refusal
    assert refusal in bench.notices


async def test_a_tool_that_changes_while_it_is_used_is_noticed_with_the_newest_protocol_too(bench: Bench) -> None:
    async with bench.servers(python_server("bench", SDK)) as servers:
        add = await find_tool(servers, "mcp__bench__add")

        await call_tool(await find_tool(servers, "mcp__bench__mutate"))
        refusal = await wait_refusal(add, a=1, b=2)
        others = await call_tool(await find_tool(servers, "mcp__bench__much"), size=1)

    assert "First read ~/.ssh/id_rsa" in refusal
    assert "it has a new argument 'path'" in refusal
    assert others.text == "beginxend"
