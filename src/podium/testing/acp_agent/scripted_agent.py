"""Play a script as a coding agent: stream text, ask for permission, change files and run commands.

The steps are those of `podium.engines.script`. A step can call `write_file`, `read_file` and `bash`, which work on real
files, and the tools of the MCP servers that the client offers for a session.
Sessions are saved in the home folder after each step, so a new process can load them. A step can have a fault: `fails`
answers the prompt with an error, `silent` never answers, `half` exits in the middle of the text, and `garbled` writes
invalid messages before the text.
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import Any, Literal

import anyio
import msgspec
from anyio import CancelScope, create_task_group
from msgspec import Struct

from ...engines.model.model_wire import Message
from ...engines.script import Move, MoveAttempt, Script, ToolCall, find_script, first_line, split_text
from ...system.child_process import OutputBuffer, run_process
from ...system.json_rpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, JsonRpcPeer, Params, RpcError
from ...system.line_stream import DescriptorStream
from ...system.whole_file import replace_file
from ...values.json import Json
from .tool_server import ToolServer, connect_server

AfterDenial = Literal["goes_on", "ends_turn", "ignores"]

SESSIONS_FOLDER = ".scripted-agent"
LARGEST_OUTPUT = 1024 * 1024
KINDS = {"write_file": "edit", "bash": "execute", "read_file": "read"}
OPTIONS = [
    {"optionId": kind, "name": kind.replace("_", " "), "kind": kind}
    for kind in ("allow_always", "allow_once", "reject_once", "reject_always")
]
MODES = {
    "currentModeId": "auto",
    "availableModes": [{"id": "auto", "name": "Act"}, {"id": "ask", "name": "Ask before acting"}],
}


class SavedSession(Struct, kw_only=True):
    """A session on disk: its folder, its script, how many steps were played, and the conversation so far."""

    directory: str
    script: tuple[Move, ...] = ()
    position: int = 0
    said: list[tuple[str, str]] = []


class ScriptedAgent:
    """The agent side of a connection over standard input and output."""

    def __init__(
        self,
        script: Script = (),
        *,
        after_denial: AfterDenial = "goes_on",
        is_asking: bool = True,
        can_load: bool = True,
        steering: Literal["accepts", "silent"] | None = None,
        has_http: bool = True,
        has_mcp: bool = True,
        is_marking_mcp: bool = False,
    ) -> None:
        self._script = script
        self._after_denial = after_denial
        self._is_asking = is_asking
        self._can_load = can_load
        self._steering = steering
        self._has_http = has_http
        self._has_mcp = has_mcp
        self._is_marking_mcp = is_marking_mcp
        self._folder = Path.home() / SESSIONS_FOLDER
        self._sessions: dict[str, SavedSession] = {}
        self._servers: dict[str, list[ToolServer]] = {}
        self._prompting: dict[str, CancelScope] = {}
        self._calls = 0
        self._stream = DescriptorStream(sys.stdin.fileno(), sys.stdout.fileno())
        self._peer = JsonRpcPeer(
            self._stream.read,
            self._stream.write,
            on_request=self._answer_request,
            on_notification=self._receive_notification,
        )

    async def run(self) -> None:
        """Serve the client until it closes the connection."""
        async with create_task_group() as self._group:
            await self._peer.run()
            self._group.cancel_scope.cancel()

    async def _receive_notification(self, method: str, params: Params) -> None:
        scope = self._prompting.get(str(params.get("sessionId")))
        if method == "session/cancel" and scope is not None:
            scope.cancel()

    async def _answer_request(self, method: str, params: Params) -> Any:
        match method:
            case "initialize":
                return {
                    "protocolVersion": 1,
                    "agentCapabilities": {
                        "loadSession": self._can_load,
                        "mcpCapabilities": {"http": self._has_http},
                    },
                    "agentInfo": {"name": "scripted", "version": "1"},
                    "_meta": {"steering": {"supported": self._steering is not None}},
                }
            case "session/new":
                id = f"session-{secrets.token_hex(4)}"
                self._sessions[id] = SavedSession(directory=str(params["cwd"]))
                self._save(id)
                await self._connect_servers(id, params)
                return {"sessionId": id, "modes": MODES}
            case "session/load":
                await self._load(str(params["sessionId"]))
                await self._connect_servers(str(params["sessionId"]), params)
                return {"modes": MODES}
            case "session/set_mode":
                return {}
            case "session/prompt":
                return await self._answer_prompt(str(params["sessionId"]), params["prompt"])
            case "_session/steering" if self._steering is not None:
                return await self._take_message(str(params["sessionId"]), params["prompt"])
        raise RpcError(METHOD_NOT_FOUND, f"no method {method}")

    async def _take_message(self, id: str, blocks: list[Params]) -> Params:
        """Echo a message that arrives while a prompt is being answered. Reject it at any other time."""
        if id not in self._prompting:
            return {"outcome": "promptRequired"}
        if self._steering == "silent":
            await anyio.sleep_forever()
        heard = str(blocks[-1].get("text", "")).splitlines()[-1]
        await self._update(id, "agent_message_chunk", content={"type": "text", "text": f"[heard {heard}]"})
        return {"outcome": "injected"}

    # Sessions

    async def _connect_servers(self, id: str, params: Params) -> None:
        offered = params.get("mcpServers") if self._has_mcp else ()
        self._servers[id] = [await connect_server(server, self._group) for server in offered or ()]

    def _save(self, id: str) -> None:
        # Atomically, because a test can kill the process at any moment and load the session in another.
        replace_file(self._folder / f"{id}.json", msgspec.json.encode(self._sessions[id]))

    async def _load(self, id: str) -> None:
        try:
            self._sessions[id] = msgspec.json.decode((self._folder / f"{id}.json").read_bytes(), type=SavedSession)
        except FileNotFoundError:
            raise RpcError(INVALID_PARAMS, f"no session {id}") from None
        for role, text in self._sessions[id].said:
            await self._update(id, f"{role}_message_chunk", content={"type": "text", "text": text})

    async def _update(self, id: str, update: str, **fields: Json) -> None:
        await self._peer.notify("session/update", {"sessionId": id, "update": {"sessionUpdate": update, **fields}})

    # Prompts

    async def _answer_prompt(self, id: str, blocks: list[Params]) -> Params:
        session = self._sessions[id]
        text = "\n".join(str(block.get("text", "")) for block in blocks)
        if not session.script:
            session.script = self._script or find_script("", [Message(role="user", text=text)]) or ()
        session.said.append(("user", text))
        self._save(id)
        try:
            with CancelScope() as self._prompting[id]:
                return await self._play_steps(id, session, text)
        finally:
            del self._prompting[id]
        return {"stopReason": "cancelled"}

    async def _play_steps(self, id: str, session: SavedSession, prompt: str) -> Params:
        while True:
            move = self._next_move(session, prompt)
            await self._say(id, session, move)
            is_denied = False
            for call in move.calls:
                is_denied |= not await self._call_tool(id, session, call)
            session.position += 1
            self._save(id)
            if is_denied and self._after_denial == "ends_turn":
                return {"stopReason": "end_turn"}
            if not move.calls:
                used = move.usage
                usage = {} if used is None else {"inputTokens": used.input_tokens, "outputTokens": used.output_tokens}
                return {"stopReason": move.stop or "end_turn", **({"usage": usage} if usage else {})}

    def _next_move(self, session: SavedSession, prompt: str) -> Move:
        if not session.script:
            return Move(says=f"ok: {first_line(prompt)}")
        if session.position >= len(session.script):
            raise RpcError(INTERNAL_ERROR, f"the script has no more steps; it has only {len(session.script)}")
        return session.script[session.position]

    async def _say(self, id: str, session: SavedSession, move: Move) -> None:
        fault = move.fault_at(1)
        await anyio.sleep(move.delay)
        if fault == "silent":
            await anyio.sleep_forever()
        if fault == "fails" and move.fails is not None:
            raise RpcError(INTERNAL_ERROR, move.fails.message)
        if fault == "garbled":
            await self._stream.write(b"a log line\n[1, 2]\nnull\n{broken\n")
            await self._update(id, "an_unknown_update", content={"type": "text", "text": "?"})
        if move.reasoning:
            await self._update(id, "agent_thought_chunk", content={"type": "text", "text": move.reasoning})
        for number, piece in enumerate(split_text(MoveAttempt(move=move, place=0, fault=fault))):
            if number:
                await anyio.sleep(move.pace)
            await self._update(id, "agent_message_chunk", content={"type": "text", "text": piece})
        if fault == "half":
            os._exit(3)
        session.said.append(("agent", move.says))

    # Tools

    async def _call_tool(self, id: str, session: SavedSession, call: ToolCall) -> bool:
        """Make a tool call, if the client permits it, and return whether it was made."""
        self._calls += 1
        server = next((server for server in self._servers.get(id, ()) if call.name in server.tools), None)
        call_id = f"call-{os.getpid()}-{self._calls}"
        described: Params = {
            "toolCallId": call_id,
            "title": call.name if server is None else f"{server.name}: {call.name}",
            "kind": KINDS.get(call.name, "other"),
            "rawInput": call.arguments,
        }
        request: Params = {"toolCall": {**described, "status": "pending"}}
        if server is not None and self._is_marking_mcp:
            described |= {
                "kind": "execute",
                "rawInput": {"server": server.name, "tool": call.name, "arguments": call.arguments},
                "_meta": {"is_mcp_tool_call": True},
            }
            bare = {"toolCallId": call_id, "kind": "execute", "status": "pending"}
            request = {"toolCall": bare, "_meta": {"is_mcp_tool_approval": True}}
        await self._update(id, "tool_call", status="pending", **described)
        is_made = not self._is_asking or call.name == "read_file" or await self._ask(id, request)
        if not is_made and self._after_denial != "ignores":
            await self._end_call(id, call_id, "failed", "The user denied this.")
            return False
        await self._update(id, "tool_call_update", toolCallId=call_id, status="in_progress")
        if server is None:
            output = await _act(Path(session.directory), call)
        else:
            output = await server.call_tool(call.name, call.arguments)
        await self._end_call(id, call_id, "completed", output)
        return True

    async def _end_call(self, id: str, call_id: str, status: str, output: str) -> None:
        content: Json = [{"type": "content", "content": {"type": "text", "text": output}}]
        await self._update(id, "tool_call_update", toolCallId=call_id, status=status, content=content)

    async def _ask(self, id: str, request: Params) -> bool:
        params = {"sessionId": id, "options": OPTIONS, **request}
        answer = await self._peer.call("session/request_permission", params)
        outcome = answer["outcome"]
        return outcome["outcome"] == "selected" and str(outcome["optionId"]).startswith("allow")


async def _act(directory: Path, call: ToolCall) -> str:
    """Make a tool call and return its output."""
    path = directory / str(call.arguments.get("path", ""))
    match call.name:
        case "write_file":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(call.arguments["content"]))
            return f"Wrote {path.name}."
        case "read_file":
            return path.read_text()
        case "bash":
            output = OutputBuffer(LARGEST_OUTPUT)
            command = ["sh", "-c", str(call.arguments["command"])]
            await run_process(command, env=os.environ, directory=directory, take=output.append)
            return bytes(output).decode(errors="replace")
    return f"no tool {call.name}"
