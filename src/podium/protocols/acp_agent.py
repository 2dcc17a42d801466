"""Serve an agent to editors that speak the Agent Client Protocol: one agent or a whole team answers the prompts.

Each prompt starts a run that continues the conversation of the run before it. The id of a session is the id of its
first run, so a session can be loaded from the store after a restart. Permission requests go to the editor and to the
inbox; the first answer counts.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from anyio import create_task_group, to_thread
from msgspec import Struct

from .. import __version__
from ..core.open_requests import Asked
from ..files.settings import Settings
from ..system.identity import get_local_actor
from ..system.json_rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    ConnectionEnded,
    JsonRpcPeer,
    Params,
    RpcError,
)
from ..system.line_stream import DescriptorStream
from ..system.locations import find_repo
from ..values.errors import NoSuchRun
from ..values.event import Entry, PermissionAsked
from ..values.json import Json, JsonObject
from ..values.request import quote_lines
from ..views.run_report import Report
from .acp_updates import SessionUpdates, Update, build_tool_call, message_update, text_content, user_update
from .client_runs import ClientRequests, ClientRun, ClientRuns, describe_missing_answer
from .conversation import find_conversation

PROTOCOL_VERSION = 1
CAPABILITIES: JsonObject = {
    "loadSession": True,
    "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
    "mcpCapabilities": {"http": False, "sse": False},
}
PERMISSION_OPTIONS = (
    {"optionId": "once", "name": "Allow once", "kind": "allow_once"},
    {"optionId": "run", "name": "Allow for this run", "kind": "allow_always"},
    {"optionId": "deny", "name": "Deny", "kind": "reject_once"},
)
CHOICE = "choice-"


class NewSession(Struct, rename="camel"):
    """The parameters of `session/new` and `session/load`."""

    cwd: str
    session_id: str = ""


class ContentBlock(Struct):
    """A block of a prompt."""

    type: str
    text: str = ""
    uri: str = ""
    resource: dict[str, Any] = {}


class Prompt(Struct, rename="camel"):
    """The parameters of `session/prompt`."""

    session_id: str
    prompt: list[ContentBlock]


@dataclass(kw_only=True)
class Session:
    """A conversation with an editor. `last_run` is the run that the next prompt continues."""

    id: str
    place: Path
    settings: Settings
    last_run: str = ""
    active: ClientRun | None = None
    is_answering: bool = False
    is_cancelled: bool = False


class AcpAgent:
    """The agent's side of a connection: `agent` answers the prompts of all sessions."""

    def __init__(self, agent: str, runs: ClientRuns, load_settings: Callable[[Path], Settings]) -> None:
        self._agent = agent
        self._runs = runs
        self._load_settings = load_settings
        self._sessions: dict[str, Session] = {}
        self.peer: JsonRpcPeer

    async def handle_request(self, method: str, params: Params) -> Json:
        """Answer a request from the editor."""
        match method:
            case "initialize":
                info = {"name": "podium", "title": f"Podium: {self._agent}", "version": __version__}
                return {
                    "protocolVersion": PROTOCOL_VERSION,
                    "agentCapabilities": CAPABILITIES,
                    "agentInfo": info,
                    "authMethods": [],
                }
            case "authenticate":
                return {}
            case "session/new":
                session = await self._open_session(_parse_params(params, NewSession), secrets.token_hex(6))
                return {"sessionId": session.id}
            case "session/load":
                await self._load_session(_parse_params(params, NewSession))
                return {}
            case "session/prompt":
                return await self._answer_prompt(_parse_params(params, Prompt))
        raise RpcError(METHOD_NOT_FOUND, f"podium acp does not support the method {method[:100]!r}")

    async def handle_notification(self, method: str, params: Params) -> None:
        """Stop the run of a session if the editor cancels it."""
        session = self._sessions.get(str(params.get("sessionId")))
        if method == "session/cancel" and session is not None and session.active is not None:
            session.is_cancelled = True
            if not session.active.run.is_over:
                await session.active.run.stop(by=self._runs.by)

    async def _open_session(self, given: NewSession, id: str) -> Session:
        place = await to_thread.run_sync(find_place, given.cwd)
        settings = await to_thread.run_sync(self._load_settings, place)
        self._sessions[id] = Session(id=id, place=place, settings=settings)
        return self._sessions[id]

    async def _load_session(self, given: NewSession) -> None:
        """Send the conversation of a session that this or an earlier process opened."""
        if (known := self._sessions.get(given.session_id)) is not None and known.is_answering:
            raise RpcError(INVALID_PARAMS, "the session is still answering a prompt; cancel it or wait until it ends")
        session = await self._open_session(given, given.session_id)
        try:
            chain = await to_thread.run_sync(find_conversation, session.settings.store, given.session_id)
        except NoSuchRun:
            del self._sessions[session.id]
            raise RpcError(INVALID_PARAMS, f"session {given.session_id[:100]!r} not found; open a new one") from None
        session.last_run = chain[-1].run
        for report in chain:
            await self._send(session, user_update(report.request))
            if report.answer is not None:
                await self._send(session, message_update(report.answer))
            else:
                await self._send(session, message_update(f"[{_describe_unanswered(report)}]"))

    async def _answer_prompt(self, given: Prompt) -> dict[str, str]:
        session = self._sessions.get(given.session_id)
        if session is None:
            raise RpcError(INVALID_PARAMS, f"session {given.session_id[:100]!r} not found; open or load it first")
        if session.is_answering:
            raise RpcError(INVALID_PARAMS, "the session is still answering a prompt; cancel it or wait until it ends")
        text = _build_prompt_text(given.prompt)
        id = "" if session.last_run else session.id
        starting = self._runs.start(session.settings, session.place, self._agent, text, id=id, after=session.last_run)
        session.is_answering = True
        try:
            async with starting as run:
                session.active, session.last_run = run, run.id
                return {"stopReason": await self._follow_run(session, run)}
        finally:
            session.active, session.is_answering, session.is_cancelled = None, False, False

    async def _follow_run(self, session: Session, run: ClientRun) -> str:
        """Send the updates of a run, and return why its turn stopped. Raise RpcError if the run has no answer."""
        updates = SessionUpdates()

        async def ask(entry: Entry, asked: Asked, text: str) -> str | None:
            if isinstance(asked, PermissionAsked):
                call = build_tool_call(updates.find_call_id(entry, asked), asked.action)
                return await self._ask_editor(session, {**call, "content": [text_content(text)]}, PERMISSION_OPTIONS)
            if not asked.choices:
                await self._send(session, message_update(f"{text}\n\n[answer with: podium answer {asked.id} TEXT]\n\n"))
                return None
            call = {"toolCallId": asked.id, "title": asked.text, "kind": "think", "status": "pending"}
            options = [
                {"optionId": f"{CHOICE}{number}", "name": choice, "kind": "allow_once"}
                for number, choice in enumerate(asked.choices)
            ]
            chosen = await self._ask_editor(session, {**call, "content": [text_content(text)]}, options)
            return asked.choices[int(chosen.removeprefix(CHOICE))] if chosen.startswith(CHOICE) else None

        async with create_task_group() as group:
            requests = ClientRequests(group, session.settings.store, run.id, ask, by=self._runs.by)
            with run.entries() as entries:
                async for entry in entries:
                    requests.handle_entry(entry)
                    for update in updates.apply(entry):
                        await self._send(session, update)
            group.cancel_scope.cancel()
        result = await run.result()
        if result.outcome == "cancelled" or session.is_cancelled:
            return "cancelled"
        if not result.succeeded:
            raise RpcError(INTERNAL_ERROR, describe_missing_answer(result))
        for update in updates.finish(result.text):
            await self._send(session, update)
        return "end_turn"

    async def _ask_editor(self, session: Session, call: JsonObject, options: Sequence[Mapping[str, str]]) -> str:
        """Show a choice to the user of the editor, and return the id of the chosen option, or an empty string."""
        params: JsonObject = {"sessionId": session.id, "toolCall": call, "options": options}
        try:
            given = await self.peer.call("session/request_permission", params)
        except (RpcError, ConnectionEnded):
            return ""  # the editor cannot show the choice, so the request stays in the inbox
        outcome = given.get("outcome") if isinstance(given, dict) else None
        chosen = outcome.get("optionId") if isinstance(outcome, dict) else None
        return str(chosen) if chosen in {option["optionId"] for option in options} else ""

    async def _send(self, session: Session, update: Update) -> None:
        with suppress(ConnectionEnded):  # the editor is gone, and the server is about to stop
            await self.peer.notify("session/update", {"sessionId": session.id, "update": update})


T = TypeVar("T")


def _parse_params(params: Params, kind: type[T]) -> T:
    """Return the parameters of a request. Raise RpcError if they are invalid."""
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        raise RpcError(INVALID_PARAMS, f"the parameters are invalid: {error}") from error


def _describe_unanswered(report: Report) -> str:
    """Describe a run that has not answered: whether it is running or can be continued, or how it ended."""
    state: str = report.state
    if state == "running":
        return f"run {report.run} is still running"
    if state in ("resumable", "paused"):
        return f"run {report.run} is {state}; to continue it, run podium resume {report.run}"
    return f"run {report.run}: {report.why or state}"


def find_place(cwd: str) -> Path:
    """Return the repository that contains `cwd`. Raise RpcError if `cwd` is not the absolute path of a folder."""
    folder = Path(cwd)
    if "\0" in cwd or not folder.is_absolute() or not folder.is_dir():
        raise RpcError(INVALID_PARAMS, f"cwd {cwd[:200]!r} is not the absolute path of a folder")
    return find_repo(folder)


def _build_prompt_text(blocks: list[ContentBlock]) -> str:
    """Return the request in a prompt. Raise RpcError if it is empty or contains anything but text and files."""
    parts: list[str] = []
    for block in blocks:
        text = block.resource.get("text")
        if block.type == "text":
            parts.append(block.text)
        elif block.type == "resource_link":
            parts.append(block.uri)
        elif block.type == "resource" and isinstance(text, str):
            parts.append(f"{block.resource.get('uri', 'A file')}:{quote_lines(text)}")
        else:
            raise RpcError(INVALID_PARAMS, f"the prompt has a block of type {block.type[:50]!r}; send text or files")
    if not (joined := "\n\n".join(parts)).strip():
        raise RpcError(INVALID_PARAMS, "the prompt is empty; send a request to the agent")
    return joined


def report_trouble(text: str) -> None:
    """Write an error message to standard error, which editors log."""
    sys.stderr.write(f"podium acp: {text}\n")


async def serve_acp(agent: str, load_settings: Callable[[Path], Settings]) -> None:
    """Serve on standard input and output until the input ends. Runs that are still active can be resumed later."""
    # The protocol uses its own file descriptor, so that other output cannot appear between its messages.
    output = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    stream = DescriptorStream(sys.stdin.fileno(), output)
    async with create_task_group() as tasks:
        runs = ClientRuns(tasks, by=get_local_actor("acp"), tell=report_trouble)
        served = AcpAgent(agent, runs, load_settings)

        async def read() -> bytes:
            if data := await stream.read():
                return data
            # Interrupt the runs, so that they can be resumed, before the peer cancels the open requests:
            # cancelling a request would stop its run for good.
            runs.close()
            return b""

        served.peer = JsonRpcPeer(
            read,
            stream.write,
            on_request=served.handle_request,
            on_notification=served.handle_notification,
            on_junk=lambda line: report_trouble(f"the editor sent a line that is not a message: {line[:200]!r}"),
        )
        await served.peer.run()
        tasks.cancel_scope.cancel()
    os.close(output)
