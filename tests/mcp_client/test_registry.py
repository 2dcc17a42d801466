"""A server that others published."""

from __future__ import annotations

import json

from .bench import Bench, called, python, tool


async def test_the_published_time_server_tells_and_converts_times(bench: Bench) -> None:
    async with bench.servers(python("time", "-m", "mcp_server_time")) as servers:
        now = await called(await tool(servers, "mcp__time__get_current_time"), timezone="UTC")
        convert = await tool(servers, "mcp__time__convert_time")
        converted = await called(convert, source_timezone="Asia/Tokyo", time="21:30", target_timezone="Asia/Kolkata")
        wrong = await called(convert, source_timezone="Mars/Base", time="21:30", target_timezone="UTC")

    assert json.loads(now.text)["timezone"] == "UTC"
    assert json.loads(converted.text)["target"]["datetime"].endswith("18:00:00+05:30")
    assert wrong.is_error
