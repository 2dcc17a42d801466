"""Agents with bad manners: each is a small program that speaks ACP in its own way."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from anyio import create_task_group, fail_after

from podium.engines.acp.agent_process import NO_SANDBOX, AgentCommand, AgentProcess, run_agent_process
from podium.system.json_rpc import ConnectionEnded, Params
from podium.values.errors import OutsideFailed

BEGINNING = """
import json, os, subprocess, sys, time

def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()

def update(**fields):
    send(method="session/update", params={"sessionId": "s", "update": fields})

def receive():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)

def answer(result, to=None):
    request = to or receive()
    send(id=request["id"], result=result)
    return request

START = {"protocolVersion": 1, "agentInfo": {"version": "9"}}
"""


class Listener:
    """Keeps the updates of a session, and answers permission requests."""

    def __init__(self) -> None:
        self.updates: list[Params] = []

    async def receive_update(self, update: Params) -> None:
        self.updates.append(update)

    async def answer_permission(self, params: Params) -> Any:
        return {"outcome": {"outcome": "cancelled"}}

    def cancel_requests(self) -> None:
        pass


@asynccontextmanager
async def run_program(folder: Path, source: str) -> AsyncIterator[tuple[AgentProcess, Listener]]:
    program, listener = folder / "agent.py", Listener()
    program.write_text(BEGINNING + dedent(source))
    command = AgentCommand(argv=(sys.executable, str(program)), env=os.environ, checkouts=(folder,), home=folder)
    with fail_after(30):
        async with run_agent_process(command, "agent", NO_SANDBOX) as agent:
            agent.handlers["s"] = listener
            yield agent, listener


async def test_a_full_stderr_blocks_nothing_and_its_end_is_kept(tmp_path: Path) -> None:
    source = """
    sys.stderr.write("x" * 5_000_000 + "\\nit is too late")
    sys.stderr.flush()
    answer(START)
    receive()
    sys.exit(4)
    """
    async with run_program(tmp_path, source) as (agent, _):
        with pytest.raises(ConnectionEnded):
            await agent.call("session/prompt", {})
        ending = await agent.describe_end()

    assert agent.version == "9"
    assert ending.startswith("agent exited with code 4; its last output: …xxx")
    assert ending.endswith("it is too late")


async def test_junk_and_unknown_updates_are_skipped_and_long_lines_arrive(tmp_path: Path) -> None:
    source = """
    print("Welcome!")
    answer(START)
    request = receive()
    print("[1, 2]\\nnull\\n{broken")
    sys.stdout.buffer.write(b"\\xff\\xfe\\n")
    update(sessionUpdate="never_heard_of", content=5)
    send(method="session/update", params={"sessionId": "s", "update": "no object"})
    send(method="session/update", params={"sessionId": "another", "update": {}})
    send(method="_vendor/thing", params=None)
    update(text="y" * 5_000_000)
    answer({"stopReason": "because"}, to=request)
    receive()
    """
    async with run_program(tmp_path, source) as (agent, listener):
        result = await agent.call("session/prompt", {})

    assert result == {"stopReason": "because"}
    assert [len(str(update.get("text", ""))) for update in listener.updates] == [0, 0, 5_000_000]


async def test_twenty_thousand_updates_arrive_in_order_before_the_answer(tmp_path: Path) -> None:
    source = """
    answer(START)
    request = receive()
    sys.stdout.write("".join(
        json.dumps({"method": "session/update", "params": {"sessionId": "s", "update": {"n": n}}}) + "\\n"
        for n in range(20_000)
    ))
    answer({}, to=request)
    receive()
    """
    async with run_program(tmp_path, source) as (agent, listener):
        await agent.call("session/prompt", {})
        assert [update["n"] for update in listener.updates] == list(range(20_000))


async def test_an_exit_in_the_middle_of_a_line_ends_the_call(tmp_path: Path) -> None:
    source = """
    answer(START)
    receive()
    sys.stdout.write('{"jsonrpc": "2.0", "id": 2, "res')
    sys.stdout.flush()
    os.kill(os.getpid(), 9)
    """
    async with run_program(tmp_path, source) as (agent, _):
        with pytest.raises(ConnectionEnded):
            await agent.call("session/prompt", {})

        assert await agent.describe_end() == "agent was killed by SIGKILL"
        assert agent.is_over


async def test_a_grandchild_that_keeps_the_pipes_open_delays_nothing(tmp_path: Path) -> None:
    source = """
    answer(START)
    receive()
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    open("pid", "w").write(str(child.pid))
    os._exit(0)
    """
    with fail_after(20):
        async with run_program(tmp_path, source) as (agent, _):
            with pytest.raises(ConnectionEnded, match="agent exited"):
                await agent.call("session/prompt", {})
    with suppress(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


async def test_a_program_that_is_no_agent_is_reported_with_its_output(tmp_path: Path) -> None:
    with pytest.raises(OutsideFailed, match="agent exited with code 2; its last output: usage: agent"):
        async with run_program(tmp_path, "sys.stderr.write('usage: agent')\nsys.exit(2)"):
            pass


async def test_another_version_of_the_protocol_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutsideFailed, match="agent speaks version 7 of ACP; Podium speaks version 1"):
        async with run_program(tmp_path, "answer({'protocolVersion': 7})\nreceive()"):
            pass


async def test_a_missing_program_is_reported(tmp_path: Path) -> None:
    command = AgentCommand(argv=("/nowhere/none",), env={}, checkouts=(tmp_path,), home=tmp_path)

    with pytest.raises(OutsideFailed, match=r"agent cannot be started: .*none does not exist"):
        async with run_agent_process(command, "agent", NO_SANDBOX):
            pass


async def test_files_and_terminals_are_not_offered_and_unknown_sessions_get_no_permission(tmp_path: Path) -> None:
    source = """
    offered = answer(START)["params"]["clientCapabilities"]
    request = receive()
    send(id="a", method="fs/read_text_file", params={"sessionId": "s", "path": "/etc/passwd"})
    first = receive()
    send(id="b", method="session/request_permission", params={"sessionId": "nobody", "options": []})
    second = receive()
    answer({"offered": offered, "first": first, "second": second}, to=request)
    receive()
    """
    async with run_program(tmp_path, source) as (agent, _), create_task_group():
        result = await agent.call("session/prompt", {})

    assert result["offered"] == {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
    assert result["first"]["error"]["code"] == -32601
    assert result["second"]["result"] == {"outcome": {"outcome": "cancelled"}}
