"""Call the tools of an MCP server that a client offers to the scripted agent, over HTTP or stdio.

This module implements only the part of the protocol that lists and calls tools.
"""

from __future__ import annotations

import os
import sys
import urllib.request
from collections.abc import Awaitable, Callable
from itertools import count
from subprocess import PIPE
from typing import Any

import msgspec
from anyio import to_thread
from anyio.abc import TaskGroup

from ...system.json_rpc import METHOD_NOT_FOUND, JsonRpcPeer, Params, RpcError
from ...system.process_group import start_process

VERSION = "2025-06-18"
HELLO = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "scripted", "version": "1"}}
SECONDS = 120.0

SendRequest = Callable[[str, Params], Awaitable[Params]]


class ToolServer:
    """A connected server. `tools` contains the names of its tools."""

    def __init__(self, name: str, send: SendRequest) -> None:
        self.name = name
        self.tools: list[str] = []
        self._send = send

    async def list_tools(self) -> None:
        """Initialise the session with the server, and read the names of its tools."""
        await self._send("initialize", HELLO)
        self.tools = [str(tool["name"]) for tool in (await self._send("tools/list", {}))["tools"]]

    async def call_tool(self, name: str, arguments: Params) -> str:
        """Call a tool and return its text."""
        answer = await self._send("tools/call", {"name": name, "arguments": arguments})
        return "\n".join(str(part.get("text", "")) for part in answer["content"])


async def connect_server(described: Params, group: TaskGroup) -> ToolServer:
    """Connect to the server that the ACP client described, and read the names of its tools."""
    send = _make_http_sender(described) if described.get("type") == "http" else _start_program(described, group)
    server = ToolServer(str(described["name"]), send)
    await server.list_tools()
    return server


def _make_http_sender(described: Params) -> SendRequest:
    headers = {str(one["name"]): str(one["value"]) for one in described["headers"]}
    headers |= {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    opener, numbers = urllib.request.build_opener(urllib.request.ProxyHandler({})), count(1)

    def post(message: Params) -> Any:
        request = urllib.request.Request(str(described["url"]), msgspec.json.encode(message), headers)
        with opener.open(request, timeout=SECONDS) as response:
            return msgspec.json.decode(response.read())

    async def send(method: str, params: Params) -> Params:
        message = {"jsonrpc": "2.0", "id": next(numbers), "method": method, "params": params}
        answer = await to_thread.run_sync(post, message, abandon_on_cancel=True)
        result: Params = answer["result"]
        return result

    return send


def _start_program(described: Params, group: TaskGroup) -> SendRequest:
    env = {str(one["name"]): str(one["value"]) for one in described["env"]}
    argv = [str(described["command"]), *map(str, described["args"])]
    child = start_process(
        argv, env={**os.environ, **env}, directory=None, stdin=PIPE, stdout=PIPE, stderr=sys.stderr.fileno()
    )
    peer = JsonRpcPeer(child.read_stdout, child.write_stdin, on_request=_refuse_request)
    group.start_soon(peer.run)

    async def send(method: str, params: Params) -> Params:
        result: Params = await peer.call(method, params)
        return result

    return send


async def _refuse_request(method: str, params: Params) -> Any:
    raise RpcError(METHOD_NOT_FOUND, f"no method {method}")
