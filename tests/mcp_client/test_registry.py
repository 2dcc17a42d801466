"""A published MCP server, called directly and by an agent."""

from __future__ import annotations

import json

from msgspec import structs

from podium.values.agent import Permissions

from ..studio import Studio
from .bench import Bench, call_tool, find_tool, python_server


async def test_the_published_time_server_tells_and_converts_times(bench: Bench) -> None:
    async with bench.servers(python_server("time", "-m", "mcp_server_time")) as servers:
        now = await call_tool(await find_tool(servers, "mcp__time__get_current_time"), timezone="UTC")
        convert = await find_tool(servers, "mcp__time__convert_time")
        converted = await call_tool(convert, source_timezone="Asia/Tokyo", time="21:30", target_timezone="Asia/Kolkata")
        wrong = await call_tool(convert, source_timezone="Mars/Base", time="21:30", target_timezone="UTC")

    assert json.loads(now.text)["timezone"] == "UTC"
    assert json.loads(converted.text)["target"]["datetime"].endswith("18:00:00+05:30")
    assert wrong.is_error


async def test_an_agent_calls_a_published_server_through_the_gate(studio: Studio) -> None:
    server = python_server("time", "-m", "mcp_server_time")
    studio.settings = structs.replace(
        studio.settings,
        mcp_servers={"time": server},
        permissions=Permissions(allow=("mcp__time__convert_time",)),
    )
    tokyo = {"source_timezone": "Asia/Tokyo", "time": "21:30", "target_timezone": "Asia/Kolkata"}
    studio.agent(
        "clock",
        says=[
            {"calls": [{"name": "mcp__time__convert_time", "arguments": tokyo}]},
            {"calls": [{"name": "mcp__time__get_current_time", "arguments": {"timezone": "UTC"}}]},
            "told",
        ],
        tools=("mcp__time",),
    )

    result = await studio.run("clock", "What time is it there?")

    assert result.succeeded, result.error
    assert "18:00:00+05:30" in studio.heard("clock")[1]
    assert "Not done" in studio.heard("clock")[2]
