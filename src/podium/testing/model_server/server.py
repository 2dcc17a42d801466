"""The server: which script answers which call, and what is remembered of the calls."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import msgspec

from ...engines.model.model_wire import Call
from ...engines.script import Move, Repertoire, Scripts, echo
from ...values.errors import OutsideFailed
from .anthropic_api import ANTHROPIC
from .api_reply import Reply, Speech
from .http_connection import Answer, Connection, Head, Traffic, encode, whole
from .openai_api import OPENAI

SPEECHES = (OPENAI, ANTHROPIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A call as it arrived; the agent of `call` is the model that was asked for."""

    call: Call
    headers: Mapping[str, str]
    is_streaming: bool


class ModelServer:
    """A scripted model on a port of its own, there while the block lasts.

    `otherwise` finds the move for calls that no script covers, and `latency` is added to every
    reply. With an `api_key` others are turned away. `log` gets a line of JSON for every call as it
    arrives; without `keeps_calls` that is the only record.
    """

    def __init__(
        self,
        scripts: Scripts = (),
        *,
        otherwise: Callable[[Call], Move] = echo,
        latency: float = 0.0,
        api_key: str = "",
        port: int = 0,
        log: Path | None = None,
        keeps_calls: bool = True,
    ) -> None:
        self.calls: list[Received] = []
        self._repertoire = Repertoire(scripts, otherwise=otherwise)
        self._latency = latency
        self._api_key = api_key
        self._port = port
        self._log_path = log
        self._log: int | None = None
        self._keeps_calls = keeps_calls
        self._total = 0
        self._counts: Counter[str] = Counter()
        self._traffic = Traffic()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Connection(self._traffic, self._answer), "127.0.0.1", self._port, backlog=4096
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
            await self._traffic.hang_up()
            await self._server.wait_closed()
        if self._log is not None:
            os.close(self._log)

    @property
    def url(self) -> str:
        """The base address, as clients of OpenAI's API want it; those of Anthropic's want it without the `/v1`."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def in_flight(self) -> int:
        """How many calls are being answered."""
        return self._traffic.in_flight

    @property
    def most_in_flight(self) -> int:
        """How many there were at most at the same time."""
        return self._traffic.most_in_flight

    def count(self, key: str) -> int:
        """How many calls came with this idempotency key."""
        return self._counts[key]

    async def wait_calls(self, count: int) -> None:
        """Wait until so many calls have arrived, from the start of the server on."""
        await self._traffic.wait(lambda: self._total >= count)

    async def wait_idle(self) -> None:
        """Wait until every call is answered in full or its caller has hung up."""
        await self._traffic.wait(lambda: not self._traffic.in_flight)

    def _answer(self, head: Head, body: bytes) -> Answer:
        """What to send for a request, and when."""
        if head.method == "GET" and head.path.endswith("/models"):
            names = self._repertoire.agents or ["scripted"]
            return whole(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in names]})
        speech = next((speech for speech in SPEECHES if head.path.endswith(speech.path)), None)
        if speech is None or head.method != "POST":
            return (speech or OPENAI).refused(404, f"there is nothing at {head.method} {head.path}")
        if self._api_key and (given := speech.key(head.headers)) != self._api_key:
            return speech.refused(403 if given else 401, f"this is not the right key: {given}")
        return self._reply(speech, head, body)

    def _reply(self, speech: Speech, head: Head, body: bytes) -> Answer:
        key = head.headers.get("idempotency-key", "")
        try:
            asked = speech.asked(body, key or sha256(body).hexdigest())
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return speech.refused(400, f"the request cannot be read: {error}")
        self._record(Received(call=asked.call, headers=head.headers, is_streaming=asked.is_streaming), key)
        try:
            cue = self._repertoire.cue(asked.call)
        except OutsideFailed as error:
            return speech.refused(400, str(error))
        answer = speech.answer(Reply(cue=cue, asked=asked, number=self._total))
        return replace(answer, delay=self._latency + answer.delay)

    def _record(self, received: Received, key: str) -> None:
        self._total += 1
        self._counts[key] += 1
        if self._keeps_calls:
            self.calls.append(received)
        if self._log is not None:
            line = {"at": time.time(), "key": key, "model": received.call.model, "stream": received.is_streaming}
            # One write of the whole line, past every buffer: it is there even if the next moment kills us.
            os.write(self._log, encode(line) + b"\n")
        self._traffic.changed()
