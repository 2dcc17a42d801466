"""`podium acp`, driven by the client of the public SDK for the Agent Client Protocol."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from acp import PROTOCOL_VERSION, RequestError, spawn_agent_process, text_block
from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse
from anyio import Event, create_task_group, fail_after, sleep

from podium.store.mailbox import post_to_mailbox
from podium.store.reader import StoreReader
from podium.store.request_list import list_open_requests
from podium.values.event import PermissionAnswered

from .conftest import find_newest_run, write_agents

TOO_LONG = 60.0


class Editor:
    """An editor that records updates, and answers permission requests with `choice`, or never if it is empty."""

    def __init__(self, choice: str = "once") -> None:
        self.choice = choice
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.has_asked = Event()

    async def session_update(self, session_id: str, update: Any, **rest: Any) -> None:
        self.updates.append(update)

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **rest: Any) -> Any:
        self.asked.append(tool_call)
        self.has_asked.set()
        if not self.choice:
            await sleep(TOO_LONG)
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=self.choice))

    def list_kinds(self) -> list[str]:
        return [one.session_update for one in self.updates]

    def join_text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(one.content.text for one in self.updates if one.session_update == kind)


@asynccontextmanager
async def connect(folder: Path, agent: str, editor: Editor) -> AsyncIterator[tuple[Any, Any]]:
    """Start `podium acp` in a repository and connect the SDK's client to it."""
    write_agents(folder)
    client: Any = editor
    environment = {**os.environ, "PODIUM_HOME": str(folder / "home")}
    with fail_after(TOO_LONG):
        async with spawn_agent_process(
            client, sys.executable, "-m", "podium", "acp", agent, env=environment, cwd=folder
        ) as (connection, process):
            await connection.initialize(protocol_version=PROTOCOL_VERSION)
            yield connection, process


async def prompt(connection: Any, session: str, text: str) -> str:
    answer = await connection.prompt(session_id=session, prompt=[text_block(text)])
    return str(answer.stop_reason)


async def open_session(connection: Any, folder: Path) -> str:
    opened = await connection.new_session(cwd=str(folder), mcp_servers=[])
    return str(opened.session_id)


async def test_a_team_is_one_agent_that_remembers_and_can_be_loaded(tmp_path: Path) -> None:
    editor = Editor()
    async with connect(tmp_path, "pair", editor) as (connection, process):
        session = await open_session(connection, tmp_path)
        assert await prompt(connection, session, "Hi") == "end_turn"
        assert await prompt(connection, session, "Again") == "end_turn"
        for wrong in ({"session_id": "ffff"}, {"session_id": session, "prompt": [text_block("  ")]}):
            with pytest.raises(RequestError, match=r"not found|is empty"):
                await connection.prompt(**({"prompt": [text_block("Hi")]} | wrong))
        with pytest.raises(RequestError, match="not the absolute path of a folder"):
            await connection.new_session(cwd="nowhere", mcp_servers=[])
        with pytest.raises(RequestError, match="does not support the method"):
            await connection.ext_method("nothing", {})
        process.send_signal(signal.SIGKILL)
        await process.wait()
    reader = Editor()
    async with connect(tmp_path, "pair", reader) as (connection, _):
        with pytest.raises(RequestError, match="not found"):
            await connection.load_session(cwd=str(tmp_path), session_id="ffff", mcp_servers=[])
        await connection.load_session(cwd=str(tmp_path), session_id=session, mcp_servers=[])
        kinds = reader.list_kinds()
        assert await prompt(connection, session, "Once more") == "end_turn"

    answer = editor.join_text()
    assert "Fine." in answer
    assert "greeter: Hello there, friend." in editor.join_text("agent_thought_chunk")
    assert kinds == ["user_message_chunk", "agent_message_chunk"] * 2
    assert reader.join_text("user_message_chunk") == "HiAgain"
    assert find_newest_run(tmp_path / "home" / "podium.db") != session


async def test_permission_is_asked_in_the_editor_and_in_the_inbox_and_the_first_answer_counts(tmp_path: Path) -> None:
    store = tmp_path / "home" / "podium.db"
    editor = Editor("deny")
    async with connect(tmp_path, "writer", editor) as (connection, _), create_task_group() as group:
        session = await open_session(connection, tmp_path)
        assert await prompt(connection, session, "Write") == "end_turn"
        assert not (tmp_path / "a.txt").exists()

        editor.choice = "once"
        assert await prompt(connection, session, "Write") == "end_turn"
        assert (tmp_path / "a.txt").read_text() == "new\n"
        (tmp_path / "a.txt").unlink()

        editor.choice, editor.has_asked = "", Event()

        async def approve() -> None:
            await editor.has_asked.wait()
            [found] = list_open_requests(store)
            given = PermissionAnswered(id=found.asked.id, decision="once", by="ada", channel="terminal")
            post_to_mailbox(store, found.summary.id, given, ref=found.asked.id)

        group.start_soon(approve)
        assert await prompt(connection, session, "Write") == "end_turn"
        assert (tmp_path / "a.txt").read_text() == "new\n"

    assert len(editor.asked) == 3
    assert "+new" in editor.asked[0].content[0].content.text
    calls = [one for one in editor.updates if one.session_update == "tool_call"]
    assert editor.asked[0].tool_call_id == calls[0].tool_call_id
    assert (calls[0].kind, calls[0].raw_input["path"]) == ("edit", "a.txt")
    ends = [one.status for one in editor.updates if one.session_update == "tool_call_update"]
    assert ends == ["failed", "completed", "completed"]


async def test_cancel_stops_the_run_and_an_editor_that_goes_away_leaves_it_resumable(tmp_path: Path) -> None:
    store = tmp_path / "home" / "podium.db"
    editor = Editor("")
    async with connect(tmp_path, "writer", editor) as (connection, _), create_task_group() as group:
        session = await open_session(connection, tmp_path)

        async def cancel() -> None:
            await editor.has_asked.wait()
            await connection.cancel(session_id=session)

        group.start_soon(cancel)
        assert await prompt(connection, session, "Write") == "cancelled"

        editor.has_asked = Event()
        other = await open_session(connection, tmp_path)

        async def leave() -> None:
            with pytest.raises(ConnectionError):
                await prompt(connection, other, "Write")

        group.start_soon(leave)
        await editor.has_asked.wait()
        await connection.close()

    with StoreReader(store) as reader:
        assert reader.read_summary(session).phase == "cancelled"
        assert reader.read_summary(other).phase == "resumable"


async def test_a_failure_is_an_error_with_our_sentence(tmp_path: Path) -> None:
    async with connect(tmp_path, "broken", Editor()) as (connection, _):
        with pytest.raises(RequestError, match="no such luck"):
            await prompt(connection, await open_session(connection, tmp_path), "Hi")


def test_an_unknown_agent_is_refused_before_anything_is_served(tmp_path: Path) -> None:
    write_agents(tmp_path)
    environment = {**os.environ, "PODIUM_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "podium", "acp", "nobody"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert "nobody" in done.stderr
