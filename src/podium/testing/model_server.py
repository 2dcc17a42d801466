"""A model at the other end of an HTTP connection that says what a script says.

It speaks OpenAI's chat completions on 127.0.0.1, streamed or whole, with tool calls, usage and every
fault that a script knows. Scripts go by the name of the model that is asked for, or ride in the prompt, so
that one server plays any number of agents. It is written on bare connections without tasks, because a
thousand agents that are being measured must not wait for the thing that measures them.

    async with ModelServer(["hello"]) as server:
        ...                                         # ask the model at server.url
        assert server.calls[0].call.messages[0].text == "hi"

As a program: `python -m podium.testing.model_server --latency 0.05 --log calls.jsonl`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import anyio
import msgspec
from msgspec import Struct

from ..engines.model.wire import Call, Message
from ..engines.scripted import Cue, Move, Repertoire, Scripts, echo, pieces, stop, usage, uses
from ..errors import OutsideFailed
from ..event import ToolUse
from ..journal import Scope
from ..mind import Tool, ToolAnswer

LONGEST_HEAD = 2**16
LARGEST_BODY = 2**26

_encode = msgspec.json.Encoder().encode


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
        self.in_flight = 0
        self.most_in_flight = 0
        self._repertoire = Repertoire(scripts, otherwise=otherwise)
        self._latency = latency
        self._api_key = api_key
        self._port = port
        self._log_path = log
        self._log: int | None = None
        self._keeps_calls = keeps_calls
        self._total = 0
        self._counts: Counter[str] = Counter()
        self._connections: set[_Connection] = set()
        self._waiting: dict[anyio.Event, Callable[[], bool]] = {}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self), "127.0.0.1", self._port, backlog=4096
        )
        self._port = self._server.sockets[0].getsockname()[1]
        if self._log_path is not None:
            self._log = os.open(self._log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for connection in list(self._connections):
            connection.abort()
        with anyio.move_on_after(1, shield=True):
            await self._wait(lambda: not self._connections)
            await self._server.wait_closed()
        if self._log is not None:
            os.close(self._log)

    @property
    def url(self) -> str:
        """The base address, as clients of this API want it."""
        return f"http://127.0.0.1:{self._port}/v1"

    def count(self, key: str) -> int:
        """How many calls came with this idempotency key."""
        return self._counts[key]

    async def wait_calls(self, count: int) -> None:
        """Wait until so many calls have arrived, from the start of the server on."""
        await self._wait(lambda: self._total >= count)

    async def wait_idle(self) -> None:
        """Wait until every call is answered in full or its caller has hung up."""
        await self._wait(lambda: not self.in_flight)

    async def _wait(self, holds: Callable[[], bool]) -> None:
        while not holds():
            event = anyio.Event()
            self._waiting[event] = holds
            try:
                await event.wait()
            finally:
                del self._waiting[event]

    def _changed(self) -> None:
        for event, holds in self._waiting.items():
            if holds():
                event.set()

    # For connections

    def _joined(self, connection: _Connection) -> None:
        self._connections.add(connection)

    def _left(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        self._changed()

    def _ended(self) -> None:
        self.in_flight -= 1
        self._changed()

    def _answer(self, head: _Head, body: bytes) -> _Answer:
        """What to send for a request, and when. A call counts as in flight from here until `_ended`."""
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        if head.method == "GET" and head.path.endswith("/models"):
            names = self._repertoire.agents or ["scripted"]
            return _whole(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in names]})
        if head.method != "POST" or not head.path.endswith("/chat/completions"):
            return _refused(404, f"there is nothing at {head.method} {head.path}")
        if self._api_key and (given := head.headers.get("authorization", "")) != f"Bearer {self._api_key}":
            return _refused(403 if given else 401, f"this is not the right key: {given.removeprefix('Bearer ')}")
        try:
            asked = _decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return _refused(400, f"the request cannot be read: {error}")
        return self._reply(head, asked, body)

    def _reply(self, head: _Head, asked: _Request, body: bytes) -> _Answer:
        key = head.headers.get("idempotency-key", "")
        call = _call(asked, key=key or sha256(body).hexdigest())
        self._record(Received(call=call, headers=head.headers, is_streaming=asked.stream), key)
        try:
            cue = self._repertoire.cue(call)
        except OutsideFailed as error:
            return _refused(400, str(error))
        is_counted = not asked.stream or (asked.stream_options or _StreamOptions()).include_usage
        reply = _Rendering(id=f"chatcmpl-{self._total}", cue=cue, call=call, is_counted=is_counted)
        answer = reply.streamed() if asked.stream else reply.whole()
        return _Answer(parts=answer.parts, delay=self._latency + answer.delay, pace=answer.pace, breaks=answer.breaks)

    def _record(self, received: Received, key: str) -> None:
        self._total += 1
        self._counts[key] += 1
        if self._keeps_calls:
            self.calls.append(received)
        if self._log is not None:
            line = {"at": time.time(), "key": key, "model": received.call.model, "stream": received.is_streaming}
            # One write of the whole line, past every buffer: it is there even if the next moment kills us.
            os.write(self._log, _encode(line) + b"\n")
        self._changed()


# Requests


class _Function(Struct, frozen=True):
    name: str = ""
    description: str = ""
    arguments: str = ""
    parameters: dict[str, Any] = {}


class _Named(Struct, frozen=True):
    id: str = ""
    function: _Function = _Function()


class _Part(Struct, frozen=True):
    text: str = ""


class _Message(Struct, frozen=True):
    role: str
    content: str | list[_Part] | None = None
    tool_calls: list[_Named] | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        parts = self.content or ""
        return parts if isinstance(parts, str) else "".join(part.text for part in parts)


class _StreamOptions(Struct, frozen=True):
    include_usage: bool = False


class _Request(Struct, frozen=True):
    model: str
    messages: list[_Message]
    tools: list[_Named] | None = None
    stream: bool = False
    stream_options: _StreamOptions | None = None


_decode = msgspec.json.Decoder(_Request).decode


def _call(asked: _Request, *, key: str) -> Call:
    return Call(
        agent=asked.model,
        model=asked.model,
        system="\n\n".join(message.text for message in asked.messages if message.role in ("system", "developer")),
        messages=tuple(_message(message) for message in asked.messages if message.role not in ("system", "developer")),
        tools=tuple(_tool(tool.function) for tool in asked.tools or ()),
        key=key,
    )


def _message(message: _Message) -> Message:
    if message.role == "tool":
        return Message(role="tool", text=message.text, answers=message.tool_call_id or "")
    if message.role != "assistant":
        return Message(role="user", text=message.text)
    return Message(role="assistant", text=message.text, calls=tuple(_use(call) for call in message.tool_calls or ()))


def _use(call: _Named) -> ToolUse:
    text = call.function.arguments
    try:
        arguments = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return ToolUse(id=call.id, name=call.function.name, unreadable=text)
    return ToolUse(id=call.id, name=call.function.name, arguments=arguments)


def _tool(function: _Function) -> Tool:
    return Tool(
        name=function.name,
        description=function.description,
        parameters=function.parameters,
        answer=_belongs_to_the_caller,
    )


async def _belongs_to_the_caller(use: ToolUse, scope: Scope) -> ToolAnswer:
    raise NotImplementedError(f"{use.name} runs where the model is called from")


# Replies


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """Bytes to send: the first part after `delay` seconds, each further one `pace` seconds later.

    Where it `breaks`, the connection is cut after the last; without any part nothing ever comes.
    """

    parts: Sequence[bytes]
    delay: float = 0.0
    pace: float = 0.0
    breaks: bool = False


def _whole(status: int, document: object, *, more: str = "") -> _Answer:
    body = document if isinstance(document, bytes) else _encode(document)
    head = f"HTTP/1.1 {status} {_reason(status)}\r\nContent-Type: application/json\r\n{more}Content-Length: {len(body)}"
    return _Answer(parts=[f"{head}\r\n\r\n".encode() + body])


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def _refused(status: int, message: str, *, retry_after: float | None = None) -> _Answer:
    more = "" if retry_after is None else f"Retry-After: {retry_after:g}\r\n"
    return _whole(status, {"error": {"message": message, "type": "scripted", "code": status}}, more=more)


_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rendering:
    """A move as this API puts it."""

    id: str
    cue: Cue
    call: Call
    is_counted: bool

    def whole(self) -> _Answer:
        """The reply as one document."""
        if (fault := self._fault()) is not None:
            return fault
        move = self.cue.move
        message: dict[str, Any] = {"role": "assistant", "content": "".join(pieces(self.cue)) or None}
        if move.reasoning:
            message["reasoning_content"] = move.reasoning
        if move.calls:
            message["tool_calls"] = [_rendered(use) for use in uses(self.cue)]
        choice = {"index": 0, "message": message, "finish_reason": stop(move)}
        document = _encode(self._document("chat.completion", choice, usage=self._usage()))
        if self.cue.fault == "garbled" and not move.calls:
            document = document[: len(document) // 2]
        reply = _whole(200, document).parts[0]
        breaks = self.cue.fault == "half"
        return _Answer(parts=[reply[: -(len(document) // 2)] if breaks else reply], delay=move.delay, breaks=breaks)

    def streamed(self) -> _Answer:
        """The reply as events, one part for each piece of its text."""
        if (fault := self._fault()) is not None:
            return fault
        move = self.cue.move
        texts = pieces(self.cue)
        parts = [self._event({"content": text}) for text in texts] or [b""]
        opening = _STREAM_HEAD + self._event({"role": "assistant", "content": ""})
        if move.reasoning:
            opening += self._event({"reasoning_content": move.reasoning})
        parts[0] = opening + parts[0]
        breaks = self.cue.fault == "half"
        if not breaks:
            parts[-1] += self._ending()
        return _Answer(parts=parts if move.pace else [b"".join(parts)], delay=move.delay, pace=move.pace, breaks=breaks)

    def _fault(self) -> _Answer | None:
        move = self.cue.move
        if self.cue.fault == "silent":
            return _Answer(parts=())
        if self.cue.fault == "fails" and (fails := move.fails) is not None:
            refused = _refused(fails.status, fails.message, retry_after=fails.retry_after)
            return _Answer(parts=refused.parts, delay=move.delay)
        return None

    def _ending(self) -> bytes:
        end = b""
        if self.cue.fault == "garbled" and not self.cue.move.calls:
            end += _chunk(b'data: {"choices": [{"delta": {"content": "br\n\n')
        for n, use in enumerate(uses(self.cue)):
            whole = _rendered(use)
            text = whole["function"]["arguments"]
            opened = {"index": n, **whole, "function": {"name": use.name, "arguments": ""}}
            deltas = [opened, *({"index": n, "function": {"arguments": part}} for part in (text[:7], text[7:]) if part)]
            end += b"".join(self._event({"tool_calls": [delta]}) for delta in deltas)
        end += self._event({}, finish=stop(self.cue.move))
        if self.is_counted:
            end += _chunk(b"data: %b\n\n" % _encode(self._document("chat.completion.chunk", usage=self._usage())))
        return end + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"

    def _event(self, delta: dict[str, Any], *, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _chunk(b"data: %b\n\n" % _encode(self._document("chat.completion.chunk", choice)))

    def _document(self, kind: str, *choices: object, usage: object = None) -> dict[str, Any]:
        document = {"id": self.id, "object": kind, "created": 0, "model": self.call.model, "choices": choices}
        return document if usage is None else {**document, "usage": usage}

    def _usage(self) -> dict[str, Any]:
        spent = usage(self.cue.move, self.call)
        return {
            "prompt_tokens": spent.input_tokens,
            "completion_tokens": spent.output_tokens,
            "total_tokens": spent.tokens,
            "prompt_tokens_details": {"cached_tokens": spent.cached_tokens},
        }


def _rendered(use: ToolUse) -> dict[str, Any]:
    arguments = use.unreadable or _encode(use.arguments).decode()
    return {"id": use.id, "type": "function", "function": {"name": use.name, "arguments": arguments}}


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


# Connections


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """A request up to its body."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: int

    @classmethod
    def parse(cls, head: bytes) -> _Head:
        """Raises ValueError for what is no request, or one whose end cannot be told."""
        first, *lines = head.decode().split("\r\n")
        method, target, version = first.split(" ", 2)
        if version != "HTTP/1.1":
            raise ValueError(f"{version} is not spoken here")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if "transfer-encoding" in headers:
            raise ValueError("a body without Content-Length is not understood")
        body = int(headers.get("content-length", 0))
        if not 0 <= body <= LARGEST_BODY:
            raise ValueError(f"a body of {body} bytes is not taken")
        return cls(method=method, path=target.partition("?")[0], headers=headers, body=body)


class _Connection(asyncio.Protocol):
    """One client: its requests are answered one after the other. Replies are small, so nothing holds them back."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._head: _Head | None = None
        self._answer: _Answer | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do the same and are no subclass.
        self._transport = cast("asyncio.Transport", transport)
        self._server._joined(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server._left(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._answer is not None:
            self._answer = None
            self._server._ended()

    def abort(self) -> None:
        self._transport.abort()

    def _next(self) -> None:
        """Answer what has arrived, as far as it can be answered now."""
        while self._answer is None and not self._transport.is_closing():
            try:
                request = self._request()
            except ValueError as error:
                self._transport.write(_refused(400, str(error)).parts[0])
                self._transport.close()
                return
            if request is None:
                return
            self._answer = self._server._answer(*request)
            if self._answer.parts:
                self._send(self._answer, 0, self._loop.time() + self._answer.delay)

    def _request(self) -> tuple[_Head, bytes] | None:
        """The next request, once it has arrived as a whole."""
        if self._head is None:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                if len(self._received) > LONGEST_HEAD:
                    raise ValueError("the head of the request is too long")
                return None
            self._head = _Head.parse(bytes(self._received[:end]))
            del self._received[: end + 4]
        head = self._head
        if len(self._received) < head.body:
            return None
        body = bytes(self._received[: head.body])
        del self._received[: head.body]
        self._head = None
        return head, body

    def _send(self, answer: _Answer, place: int, moment: float) -> None:
        """Send the parts from `place` on, the first of them at `moment`. A timer goes on with what is not due."""
        while place < len(answer.parts):
            if moment > self._loop.time():
                self._timer = self._loop.call_at(moment, self._go_on, answer, place, moment)
                return
            self._transport.write(answer.parts[place])
            place += 1
            moment += answer.pace
        if answer.breaks:
            self._transport.close()
        else:
            self._answer = None
            self._server._ended()

    def _go_on(self, answer: _Answer, place: int, moment: float) -> None:
        self._send(answer, place, moment)
        self._next()


# The program


def main() -> None:
    """Serve until told to end."""
    parser = argparse.ArgumentParser(prog="python -m podium.testing.model_server", description="A scripted model.")
    parser.add_argument("--port", type=int, default=0, help="default: any that is free")
    parser.add_argument("--latency", type=float, default=0.0, metavar="SECONDS", help="before every reply")
    parser.add_argument("--pieces", type=int, default=1, metavar="N", help="in which a reply is streamed")
    parser.add_argument("--pace", type=float, default=0.0, metavar="SECONDS", help="between pieces")
    parser.add_argument("--says", metavar="TEXT", help="the reply where the prompt brings no script; default: an echo")
    parser.add_argument("--log", type=Path, metavar="FILE", help="gets a line of JSON for every call")
    options = parser.parse_args()

    def otherwise(call: Call) -> Move:
        says = echo(call).says if options.says is None else options.says
        return Move(says=says, pieces=options.pieces, pace=options.pace)

    server = ModelServer(
        otherwise=otherwise, latency=options.latency, port=options.port, log=options.log, keeps_calls=False
    )
    anyio.run(_serve, server, backend_options={"use_uvloop": find_spec("uvloop") is not None})


async def _serve(server: ModelServer) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with server:
            sys.stdout.write(f"listening on {server.url}\n")
            sys.stdout.flush()
            async for _ in signals:
                return


if __name__ == "__main__":
    main()
