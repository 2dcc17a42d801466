"""The public ACP SDK as the other party: its agent with our engine, and its client with our scripted agent."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group

from podium.engines.acp.agent_program import AgentProgram
from podium.testing import format_script
from podium.values.event import Decision, PermissionAsked

from . import sdk_agent
from .agent_lab import AgentLab

acp = pytest.importorskip("acp")


@pytest.mark.parametrize(("decision", "said"), [("once", "done"), ("deny", "not done")])
async def test_our_engine_drives_an_agent_of_the_sdk(tmp_path: Path, decision: Decision, said: str) -> None:
    program = AgentProgram(name="sdk", command=(sys.executable, str(Path(sdk_agent.__file__))))
    lab = AgentLab("sdk", tmp_path, program=program)

    async with lab.session([]) as session, create_task_group() as group:
        group.start_soon(lab.answer_request, decision, "no")
        reply = await session.ask("Write it.")

    [asked] = lab.events(PermissionAsked)
    assert reply.text.startswith(f"Write it.: {said}")
    assert (lab.repo / "made.txt").exists() == (decision == "once")
    assert asked.action.arguments == {"path": "made.txt", "old": "", "new": "hello\n"}
    assert asked.shown.splitlines()[-1] == "+hello"


class SdkClient:
    """A client that is written with the SDK: it keeps what it receives and allows everything."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.asked: list[Any] = []

    def on_connect(self, conn: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **rest: Any) -> None:
        if update.session_update == "agent_message_chunk":
            self.texts.append(update.content.text)

    async def request_permission(self, session_id: str, tool_call: Any, options: list[Any], **rest: Any) -> Any:
        self.asked.append(tool_call)
        chosen = next(option for option in options if option.kind == "allow_once")
        outcome = acp.schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        return acp.schema.RequestPermissionResponse(outcome=outcome)


async def test_a_client_of_the_sdk_drives_our_side_of_an_agent(tmp_path: Path) -> None:
    write = {"says": "Now.", "calls": [{"name": "write_file", "arguments": {"path": "a", "content": "b"}}]}
    script = format_script(write, "Done.")
    client, command = SdkClient(), (sys.executable, "-m", "podium.testing.acp_agent")
    opening = acp.spawn_agent_process(client, *command, env={"HOME": str(tmp_path)})

    async with opening as (connection, _):
        started = await connection.initialize(protocol_version=1)
        session = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
        answer = await connection.prompt(session_id=session.session_id, prompt=[acp.text_block(script)])

    assert started.agent_info.name == "scripted"
    assert session.modes.current_mode_id == "auto"
    assert answer.stop_reason == "end_turn"
    assert client.texts == ["Now.", "Done."]
    assert [call.raw_input for call in client.asked] == [{"path": "a", "content": "b"}]
    assert (tmp_path / "a").read_text() == "b"
