"""Servers that do not start, crash, hang or refuse to exit."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from podium.mcp_client.server_table import McpServer, McpTimeouts

from ..system.descriptors import count_descriptors
from .bench import RAW, SDK, SHORT_TIMEOUTS, Bench, call_tool, find_tool, is_alive, python_server


def read_pids(pids: Path) -> list[int]:
    return [int(line) for line in pids.read_text(encoding="ascii").split()] if pids.exists() else []


async def wait_pids(pids: Path, count: int) -> list[int]:
    with anyio.fail_after(20):
        while len(found := read_pids(pids)) < count:
            await anyio.lowlevel.checkpoint()
    return found


async def test_a_server_that_exits_at_its_start_gives_a_notice_with_its_last_output(bench: Bench) -> None:
    async with bench.servers(python_server("raw", RAW, "crash")) as servers:
        found = await servers.acting(["mcp__raw"])

    assert found == []
    assert bench.notices == [
        "the MCP server 'raw' cannot be used: it exited with code 3; its last output: no clock\\x1b[31m on the wall"
    ]


async def test_a_missing_program_gives_a_notice(bench: Bench) -> None:
    here = bench.home / "repo" / "planted"
    here.parent.mkdir(parents=True)
    here.write_text("#!/bin/sh\ntouch planted-ran\n", encoding="ascii")
    here.chmod(0o755)
    missing = McpServer(name="missing", command="/no/such/program")
    planted = McpServer(name="planted", command="planted")

    async with bench.servers(missing, planted, environ={"PATH": f".:{os.environ['PATH']}"}) as servers:
        await servers.acting(["mcp__missing"])
        await servers.acting(["mcp__planted"])

    assert bench.notices == [
        "the MCP server 'missing' cannot be used: it cannot be started: /no/such/program does not exist",
        "the MCP server 'planted' cannot be used: program 'planted' not found on the PATH",
    ]
    assert not (bench.home / "repo" / "planted-ran").exists()


async def test_a_program_that_may_not_be_executed_gives_a_notice(bench: Bench, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n", encoding="ascii")
    program.chmod(0o644)

    async with bench.servers(McpServer(name="plain", command=str(program))) as servers:
        await servers.acting(["mcp__plain"])

    [notice] = bench.notices
    assert notice.startswith(f"the MCP server 'plain' cannot be used: it cannot be started: {program} ")
    assert "chmod +x" in notice


async def test_no_descriptor_of_a_server_is_left_open(bench: Bench) -> None:
    async def use_server() -> None:
        async with bench.servers(python_server("raw", RAW)) as servers:
            await call_tool(await find_tool(servers, "mcp__raw__say"), text="x")

    await use_server()
    before = count_descriptors()
    await use_server()

    assert count_descriptors() == before


async def test_a_variable_that_is_not_set_gives_a_notice(bench: Bench) -> None:
    async with bench.servers(python_server("raw", RAW, env={"TOKEN": "${NOT_SET}"})) as servers:
        await servers.acting(["mcp__raw"])

    [notice] = bench.notices
    assert notice.startswith("the MCP server 'raw' cannot be used: ")
    assert "NOT_SET" in notice


async def test_a_server_that_does_not_answer_in_time_is_killed(bench: Bench, tmp_path: Path) -> None:
    server = python_server("raw", RAW, "silent", "stubborn", env={"PIDS": str(tmp_path / "pids")})

    async with bench.servers(server, limits=McpTimeouts(start=1.0, grace=0.1)) as servers:
        found = await servers.acting(["mcp__raw"])
        pids = read_pids(tmp_path / "pids")

        assert found == []
        assert bench.notices == ["the MCP server 'raw' cannot be used: it did not answer within 1 s"]
        assert len(pids) == 2
        assert not any(is_alive(pid) for pid in pids)


async def test_output_that_is_not_a_message_is_ignored(bench: Bench) -> None:
    async with bench.servers(python_server("raw", RAW, "banner")) as servers:
        answer = await call_tool(await find_tool(servers, "mcp__raw__say"), text="hello")

    assert answer.text == "hello"


async def test_a_server_that_exits_during_a_call_says_why_and_is_restarted_at_the_next(bench: Bench) -> None:
    async with bench.servers(python_server("bench", SDK)) as servers:
        pid = await find_tool(servers, "mcp__bench__pid")
        first = await call_tool(pid)

        died = await call_tool(await find_tool(servers, "mcp__bench__die"), code=1)
        second = await call_tool(pid)

    assert died.is_error
    assert died.text == "the MCP server bench is not available: it exited with code 1; its last output: I saw it coming"
    assert not second.is_error
    assert first.text != second.text


async def test_a_server_that_was_killed_between_calls_is_started_again(bench: Bench, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with bench.servers(python_server("raw", RAW, env={"PIDS": str(pids)})) as servers:
        say = await find_tool(servers, "mcp__raw__say")
        os.kill(read_pids(pids)[0], signal.SIGKILL)

        answers = [await call_tool(say, text="still here") for _ in range(2)]

    assert answers[-1].text == "still here"
    assert answers[0].text in ("still here", "the MCP server raw is not available: it was killed by SIGKILL")


async def test_a_server_that_always_exits_is_not_restarted_forever(bench: Bench, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    server = python_server("raw", RAW, "once", env={"PIDS": str(pids), "API_KEY": "${API_KEY}"})
    async with bench.servers(server, environ={"API_KEY": "canary-123456"}) as servers:
        say = await find_tool(servers, "mcp__raw__say")

        answers = [await call_tool(say, text="x") for _ in range(4)]

    gone = "the MCP server raw is not available: it exited with code 1; its last output: call me never (${API_KEY})"
    assert [answer.text for answer in answers] == [gone, *[f"{gone}; it will not be restarted in this run"] * 3]
    assert len(read_pids(pids)) == 2


@pytest.mark.parametrize("how", ["stubborn", "leaky"])
async def test_no_process_outlives_the_block(bench: Bench, tmp_path: Path, how: str) -> None:
    pids = tmp_path / "pids"

    async with bench.servers(python_server("raw", RAW, how, env={"PIDS": str(pids)})) as servers:
        await call_tool(await find_tool(servers, "mcp__raw__say"), text="x")
        alive = [is_alive(pid) for pid in read_pids(pids)]

    assert alive == [True, True]
    assert [is_alive(pid) for pid in read_pids(pids)] == [False, False]


@pytest.mark.parametrize("how", ["silent", "stubborn"])
async def test_no_process_outlives_a_run_that_is_cancelled_in_the_middle_of_a_start(
    bench: Bench, tmp_path: Path, how: str
) -> None:
    pids = tmp_path / "pids"

    async def run() -> None:
        async with bench.servers(python_server("raw", RAW, how, env={"PIDS": str(pids)})) as servers:
            await servers.acting(["mcp__raw"])
            await anyio.sleep_forever()

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await wait_pids(pids, 1)
        group.cancel_scope.cancel()

    assert not any(is_alive(pid) for pid in read_pids(pids))


def read_commands() -> Iterator[bytes]:
    """Yield the command lines of all processes, without those that exit meanwhile."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield path.read_bytes()


@pytest.mark.parametrize("moment", [0.0, 0.001, 0.003, 0.01, 0.03, 0.05, 0.1])
async def test_no_process_outlives_a_cancellation_at_any_moment(bench: Bench, moment: float) -> None:
    token = f"token-{os.getpid()}-{time.monotonic_ns()}"

    with anyio.move_on_after(moment):
        async with bench.servers(python_server("raw", RAW, "stubborn", token)) as servers:
            await servers.acting(["mcp__raw"])
            await anyio.sleep_forever()

    assert not any(token.encode() in command for command in read_commands())


async def test_an_agent_that_gives_up_waiting_does_not_end_the_start_that_others_wait_for(bench: Bench) -> None:
    async with bench.servers(python_server("bench", SDK)) as servers:
        with anyio.move_on_after(0.05) as scope:
            await servers.acting(["mcp__bench"])

        answer = await call_tool(await find_tool(servers, "mcp__bench__add"), a=1, b=1)

    assert scope.cancelled_caught
    assert answer.text == "2"


async def test_a_server_that_floods_its_error_stream_does_not_stop(bench: Bench) -> None:
    program = f"import sys; sys.stderr.write('x' * 10_000_000); sys.argv = ['raw']; exec(open({RAW!r}).read())"
    server = McpServer(name="raw", command=sys.executable, args=("-c", program))

    async with bench.servers(server, limits=SHORT_TIMEOUTS) as servers:
        answer = await call_tool(await find_tool(servers, "mcp__raw__say"), text="x")

    assert answer.text == "x"
