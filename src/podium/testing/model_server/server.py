"""Implement the model server, which chooses the script for each call and records the calls."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import msgspec

from ...engines.model.model_wire import ModelCall
from ...engines.script import Move, Scripts, ScriptSet, echo_request
from ...values.errors import OutsideFailed
from .anthropic_api import ANTHROPIC
from .api_reply import ModelApi, ScriptedReply
from .gemini_api import GEMINI, GEMINI_STREAM
from .http_connection import Connection, ConnectionTracker, RequestHead, TimedResponse, build_json_response, encode
from .openai_api import OPENAI
from .responses_api import RESPONSES

MODEL_APIS = (OPENAI, RESPONSES, ANTHROPIC, GEMINI, GEMINI_STREAM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A call that the server received. `call.agent` is the requested model, or `gemini` for calls to the Gemini API."""

    call: ModelCall
    headers: Mapping[str, str]
    is_streaming: bool


class ModelServer:
    """A scripted model on its own port, running for the duration of the block.

    `otherwise` returns the reply to a call without a script. `latency` is added to the delay of every reply. If
    `api_key` is set, calls with a different key are refused. `window` is the context window that the list of models
    reports. Every valid call is appended to `log` as a line of JSON when it arrives. If `keeps_calls` is false, that
    log is the only record of the calls.
    """

    def __init__(
        self,
        scripts: Scripts = (),
        *,
        otherwise: Callable[[ModelCall], Move] = echo_request,
        latency: float = 0.0,
        api_key: str = "",
        window: int | None = None,
        port: int = 0,
        log: Path | None = None,
        keeps_calls: bool = True,
    ) -> None:
        self.calls: list[Received] = []
        self._scripts = ScriptSet(scripts, otherwise=otherwise)
        self._latency = latency
        self._api_key = api_key
        self._window = window
        self._port = port
        self._log_path = log
        self._log: int | None = None
        self._keeps_calls = keeps_calls
        self._total = 0
        self._counts: Counter[str] = Counter()
        self._tracker = ConnectionTracker()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Connection(self._tracker, self._respond_to_request), "127.0.0.1", self._port, backlog=4096
        )
        self._port = self._server.sockets[0].getsockname()[1]
        if self._log_path is not None:
            self._log = os.open(self._log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        with anyio.move_on_after(1, shield=True):
            await self._tracker.abort_connections()
            await self._server.wait_closed()
        if self._log is not None:
            os.close(self._log)

    @property
    def url(self) -> str:
        """The base URL for OpenAI clients; Anthropic clients need it without the `/v1`."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def in_flight(self) -> int:
        """The number of calls in progress."""
        return self._tracker.in_flight

    @property
    def most_in_flight(self) -> int:
        """The highest number of calls that were in progress at the same time."""
        return self._tracker.most_in_flight

    def count(self, key: str) -> int:
        """Return how many calls had this idempotency key."""
        return self._counts[key]

    async def wait_calls(self, count: int) -> None:
        """Wait until `count` calls have arrived since the server started."""
        await self._tracker.wait_until(lambda: self._total >= count)

    async def wait_idle(self) -> None:
        """Wait until every call is fully answered or its caller has disconnected."""
        await self._tracker.wait_until(lambda: not self._tracker.in_flight)

    def _respond_to_request(self, head: RequestHead, body: bytes) -> TimedResponse:
        """Return the response to a request, with its timing."""
        if head.method == "GET" and head.path.endswith("/models"):
            return build_json_response(200, {"object": "list", "data": list(self._list_models())})
        api = next((api for api in MODEL_APIS if head.path.endswith(api.path)), None)
        if api is None or head.method != "POST":
            return (api or OPENAI).build_error_response(404, f"{head.method} {head.path} does not exist")
        if self._api_key and (given := api.read_api_key(head.headers)) != self._api_key:
            return api.build_error_response(403 if given else 401, f"the API key is missing or wrong: {given}")
        return self._reply_to_call(api, head, body)

    def _list_models(self) -> Iterator[dict[str, object]]:
        reported = {} if self._window is None else {"max_model_len": self._window}
        for name in self._scripts.agent_names or ["scripted"]:
            yield {"id": name, "object": "model", **reported}

    def _reply_to_call(self, api: ModelApi, head: RequestHead, body: bytes) -> TimedResponse:
        key = head.headers.get("idempotency-key", "")
        try:
            request = api.parse_request(body, key or sha256(body).hexdigest())
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return api.build_error_response(400, f"the request cannot be read: {error}")
        self._record_call(Received(call=request.call, headers=head.headers, is_streaming=request.is_streaming), key)
        try:
            attempt = self._scripts.next_attempt(request.call)
        except OutsideFailed as error:
            return api.build_error_response(400, str(error))
        response = api.build_response(ScriptedReply(attempt=attempt, request=request, number=self._total))
        return replace(response, delay=self._latency + response.delay)

    def _record_call(self, received: Received, key: str) -> None:
        self._total += 1
        self._counts[key] += 1
        if self._keeps_calls:
            self.calls.append(received)
        if self._log is not None:
            line = {"at": time.time(), "key": key, "model": received.call.model, "stream": received.is_streaming}
            # Written unbuffered and in one piece, so that the line survives if the process is killed right after.
            os.write(self._log, encode(line) + b"\n")
        self._tracker.notify_waiters()
