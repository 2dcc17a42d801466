"""Exchange JSON-RPC 2.0 messages with another program, one per line, with requests in both directions.

The other program may not follow the protocol. A line that is not a message is passed to `on_junk` and skipped.
Notifications are handled one after the other, in the order in which they arrived, and before the response that follows
them. Each request is handled in its own task, so a handler that waits for a person delays nothing else.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
from anyio import BrokenResourceError, CancelScope, ClosedResourceError, create_task_group
from anyio.abc import TaskGroup

from ..values.errors import OutsideFailed, PodiumError
from ..values.json import Json, JsonObject
from .line_stream import ReadBytes, WriteBytes, iterate_lines

LONGEST_MESSAGE = 64 * 1024 * 1024
"""The maximum number of bytes in a message; a longer one ends the connection."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800

CANCEL_REQUEST = "$/cancel_request"
"""The notification that asks the other side to stop handling a request."""

Params = dict[str, Any]
HandleRequest = Callable[[str, Params], Awaitable[Json]]
"""Handles a request and returns its result. Raises RpcError to answer with an error."""
HandleNotification = Callable[[str, Params], Awaitable[None]]


class RpcError(PodiumError):
    """An error response to a request: received from the other side, or to be sent to it."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class ConnectionEnded(OutsideFailed):
    """The connection ended before the other side answered. The message says how it ended."""


async def _ignore_notification(method: str, params: Params) -> None:
    """Do nothing."""


class JsonRpcPeer:
    """One side of a connection. `run` receives messages; `call` and `notify` send them while it runs."""

    def __init__(
        self,
        read: ReadBytes,
        write: WriteBytes,
        *,
        on_request: HandleRequest,
        on_notification: HandleNotification = _ignore_notification,
        on_junk: Callable[[bytes], None] = lambda line: None,
    ) -> None:
        self._read = read
        self._write = write
        self._on_request = on_request
        self._on_notification = on_notification
        self._on_junk = on_junk
        self._last_id = 0
        self._pending: dict[str, asyncio.Future[Any]] = {}
        self._handling: dict[str, CancelScope] = {}
        self._ended = ""
        """Why the connection ended; empty until then."""

    async def run(self) -> None:
        """Receive and handle messages until the other side closes its output; then fail all open calls."""
        try:
            async with create_task_group() as handlers:
                async for line in iterate_lines(self._read, longest=LONGEST_MESSAGE):
                    if line is None:
                        self.end_calls(f"the other side sent a message longer than {LONGEST_MESSAGE:,} bytes")
                        break
                    await self._receive_line(line, handlers)
                handlers.cancel_scope.cancel()
        finally:
            self.end_calls("the other side closed the connection")

    def end_calls(self, reason: str) -> None:
        """Fail all open and later calls with this reason, unless the connection has already ended."""
        self._ended = self._ended or reason
        for waiting in self._pending.values():
            if not waiting.done():
                waiting.set_exception(ConnectionEnded(self._ended))
                waiting.exception()  # mark the exception as retrieved, because a cancelled caller never retrieves it

    async def call(self, method: str, params: JsonObject) -> Any:
        """Send a request and return its result.

        Raise RpcError if the other side answers with an error, and ConnectionEnded if it does not answer. Cancelling a
        call only stops waiting for the response. To stop the work, send the protocol's own message for that.
        """
        self._require_connection()
        self._last_id += 1
        key = str(self._last_id)
        self._pending[key] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"id": self._last_id, "method": method, "params": params})
            return await self._pending[key]
        finally:
            del self._pending[key]

    async def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification. Raise ConnectionEnded if the connection has ended."""
        self._require_connection()
        await self._send({"method": method, "params": params})

    def _require_connection(self) -> None:
        if self._ended:
            raise ConnectionEnded(self._ended)

    async def _send(self, message: JsonObject) -> None:
        try:
            await self._write(msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n")
        except (BrokenResourceError, ClosedResourceError, OSError):
            raise ConnectionEnded(self._ended or "the other side no longer reads its input") from None

    async def _receive_line(self, line: bytes, handlers: TaskGroup) -> None:
        message = _parse_message(line)
        if message is None:
            self._on_junk(line)
            return
        method, id = message.get("method"), message.get("id")
        if not isinstance(method, str):
            self._receive_response(message)
            return
        given = message.get("params")
        params = given if isinstance(given, dict) else {}
        if id is not None:
            handlers.start_soon(self._answer_request, id, method, params)
        elif method == CANCEL_REQUEST:
            if (scope := self._handling.get(str(params.get("requestId", params.get("id"))))) is not None:
                scope.cancel()
        else:
            await self._on_notification(method, params)

    def _receive_response(self, message: Params) -> None:
        # Some programs send the id back as a string.
        waiting = self._pending.get(str(message.get("id")))
        if waiting is None or waiting.done():
            return
        error = message.get("error")
        if error is None:
            waiting.set_result(message.get("result"))
        else:
            waiting.set_exception(_read_error(error))

    async def _answer_request(self, id: Json, method: str, params: Params) -> None:
        key = str(id)
        response: dict[str, Any] = {"error": {"code": REQUEST_CANCELLED, "message": "the request was cancelled"}}
        try:
            with CancelScope() as self._handling[key]:
                response = {"result": await self._on_request(method, params)}
        except RpcError as error:
            response = {"error": {"code": error.code, "message": str(error)}}
            if error.data is not None:
                response["error"]["data"] = error.data
        except PodiumError as error:
            response = {"error": {"code": INTERNAL_ERROR, "message": str(error)}}
        finally:
            self._handling.pop(key, None)
        with suppress(ConnectionEnded):
            await self._send({"id": id, **response})


def _parse_message(line: bytes) -> Params | None:
    """Return the JSON object in a line, or None if the line is something else."""
    try:
        message = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            # Unlike msgspec, this accepts an unpaired surrogate, which JavaScript writes when it truncates a string.
            message = json.loads(line.decode(errors="replace"))
        except (ValueError, RecursionError):
            return None
    return message if isinstance(message, dict) else None


def _read_error(error: object) -> RpcError:
    """Return the error in a response. Text in its `data` is added to its message, which is often generic."""
    if not isinstance(error, dict):
        return RpcError(INTERNAL_ERROR, str(error))
    code, data = error.get("code"), error.get("data")
    message = str(error.get("message") or "the other side gave no reason")
    details = data.get("details", data.get("message")) if isinstance(data, dict) else data
    if isinstance(details, str) and details.strip() and details not in message:
        message = f"{message}: {details.strip()}"
    return RpcError(code if isinstance(code, int) else INTERNAL_ERROR, message, data)
