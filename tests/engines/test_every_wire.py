"""What every HTTP adapter must do, whatever its provider's API format. Add each new adapter to the list here first."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import aiohttp
import anyio
import msgspec
import pytest
from anyio.abc import SocketAttribute, SocketStream
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from podium import Agent
from podium.core.engine import CUT_OFF_MARK, EngineSessionSpec, Finished, Reasoning, Text
from podium.core.scope import Scope
from podium.core.timeline import Timeline
from podium.engines.model.anthropic_wire import AnthropicReplyFormat, AnthropicWire
from podium.engines.model.model_wire import Message, Model, ReplyEnd, ReplyPart, ToolCallPart, Wire
from podium.engines.model.openai_wire import OpenAIReplyFormat, OpenAIWire
from podium.engines.model.stream_events import LONGEST_LINE, ReplyParser
from podium.engines.model.tool_loop import ModelEngine
from podium.engines.script import Move, ScriptedWire, ToolCall
from podium.store.run_store import RunStore
from podium.testing import ModelServer
from podium.values.errors import Mistake, OutsideFailed
from podium.values.event import ModelReplied, ToolUse
from podium.values.usage import CallLimits, Usage

from ..studio import Studio
from .outside import (
    KEY,
    LOOK,
    STREAM_HEAD,
    chunk_body,
    collect_parts,
    http_response,
    make_call,
    make_failure,
    merge_texts,
    serve_replies,
)

HI = Message(role="user", text="hi")


class OpenAI:
    """Replies in the format of OpenAI."""

    name = "openai"
    key_name = "OPENAI_API_KEY"
    key_headers: ClassVar = {"authorization": f"Bearer {KEY}"}
    wire = OpenAIWire
    reply_format = OpenAIReplyFormat
    start = b""
    path = "/chat/completions"
    last_event = b"data: [DONE]\n\n"
    invalid_event = b'data: {"choices": 7}\n\n'

    def seals(self, move: Move) -> bool:
        return bool(move.reasoning and move.calls)

    def event(self, delta: dict[str, Any]) -> bytes:
        return b"data: %b\n\n" % msgspec.json.encode({"choices": [{"index": 0, "delta": delta}]})

    def text(self, text: str) -> bytes:
        return self.event({"content": text})

    def reasoning(self, text: str) -> bytes:
        return self.event({"reasoning_content": text})

    def call_start(self, index: int, id: str, name: str) -> bytes:
        return self.event({"tool_calls": [{"index": index, "id": id, "function": {"name": name, "arguments": ""}}]})

    def call_part(self, index: int, arguments: str) -> bytes:
        return self.event({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})

    def stop(self, reason: str | None) -> bytes:
        return b"data: %b\n\n" % msgspec.json.encode({"choices": [{"delta": {}, "finish_reason": reason}]})

    def usage(self, sent: int, said: int) -> bytes:
        usage = {"prompt_tokens": sent, "completion_tokens": said}
        return b"data: %b\n\n" % msgspec.json.encode({"choices": [], "usage": usage})

    def error(self, error: object) -> bytes:
        return b"data: %b\n\n" % msgspec.json.encode({"error": error})

    def document(self, text: str, reason: str | None) -> bytes:
        return msgspec.json.encode({"choices": [{"message": {"content": text}, "finish_reason": reason}]})


class Anthropic:
    """Replies in the format of Anthropic."""

    name = "anthropic"
    key_name = "ANTHROPIC_API_KEY"
    key_headers: ClassVar = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
    wire = AnthropicWire
    reply_format = AnthropicReplyFormat
    path = "/messages"
    invalid_event = b'data: {"type": 7}\n\n'

    def seals(self, move: Move) -> bool:
        return bool(move.reasoning)

    def event(self, kind: str, **more: Any) -> bytes:
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **more}))

    @property
    def start(self) -> bytes:
        return self.event("message_start", message={"type": "message", "content": []})

    @property
    def last_event(self) -> bytes:
        return self.event("message_stop")

    def text(self, text: str) -> bytes:
        return self.block({"type": "text", "text": ""}, {"type": "text_delta", "text": text})

    def reasoning(self, text: str) -> bytes:
        deltas = [{"type": "thinking_delta", "thinking": text}, {"type": "signature_delta", "signature": "sig=="}]
        return self.block({"type": "thinking", "thinking": "", "signature": ""}, *deltas)

    def block(self, start: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
        events = [self.event("content_block_delta", index=90, delta=delta) for delta in deltas]
        opening = self.event("content_block_start", index=90, content_block=start)
        return b"".join([opening, *events, self.event("content_block_stop", index=90)])

    def call_start(self, index: int, id: str, name: str) -> bytes:
        block = {"type": "tool_use", "id": id, "name": name, "input": {}}
        return self.event("content_block_start", index=index, content_block=block)

    def call_part(self, index: int, arguments: str) -> bytes:
        delta = {"type": "input_json_delta", "partial_json": arguments}
        return self.event("content_block_delta", index=index, delta=delta)

    def stop(self, reason: str | None) -> bytes:
        return self.event("message_delta", delta={"stop_reason": reason})

    def usage(self, sent: int, said: int) -> bytes:
        return self.event("message_delta", usage={"input_tokens": sent, "output_tokens": said})

    def error(self, error: object) -> bytes:
        return self.event("error", error=error, request_id="req_1")

    def document(self, text: str, reason: str | None) -> bytes:
        content = [{"type": "text", "text": text}]
        return msgspec.json.encode({"type": "message", "content": content, "stop_reason": reason})


Api = OpenAI | Anthropic
APIS: list[Api] = [OpenAI(), Anthropic()]

pytestmark = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)


def end(api: Api, reason: str = "stop") -> bytes:
    return api.stop(reason) + api.last_event


def hello(api: Api) -> bytes:
    """Return the events of a whole reply."""
    return api.start + api.text("hello") + end(api)


def stream_response(*events: bytes) -> bytes:
    body = b"".join(events)
    return STREAM_HEAD + (chunk_body(body) if body else b"0\r\n\r\n")


@asynccontextmanager
async def open_wire(api: Api, url: str, api_key: str = KEY, **more: Any) -> AsyncIterator[Wire]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        yield api.wire(lambda: client, url, api_key, **more)


async def receive_parts(api: Api, reply: bytes, *, closes: bool = True) -> list[ReplyPart]:
    async with serve_replies([reply], closes=closes) as raw_server, open_wire(api, raw_server.url) as wire:
        return await collect_parts(wire, make_call())


def make_parser(api: Api) -> ReplyParser:
    return ReplyParser(api.reply_format(), make_failure=make_failure, sent=0, place=1)


def parse_reply(api: Api, *packets: bytes) -> list[ReplyPart]:
    reply = make_parser(api)
    parts = [part for packet in packets for part in reply.feed(packet)]
    return parts + list(reply.finish_reply())


# Against a scripted model server


@pytest.mark.parametrize(
    "move",
    [
        Move(says="hello"),
        Move(says="naïve 🎻 text", pieces=7, reasoning="let me see"),
        Move(says="looking", calls=(ToolCall(name="look", arguments={"at": [1, "ü"]}), ToolCall(name="go"))),
        Move(says="looking", reasoning="hm", calls=(ToolCall(name="look", arguments={"at": 1}),)),
        Move(calls=(ToolCall(name="look", arguments={"at": 1}),), garbled=True),
        Move(says="x", usage=Usage(input_tokens=9, output_tokens=8, cached_tokens=7)),
        Move(says="slow", pieces=4, delay=0.001, pace=0.001),
        Move(),
    ],
)
async def test_a_script_over_http_gives_the_same_parts_as_in_process(api: Api, move: Move) -> None:
    model_call = make_call(
        HI,
        Message(role="assistant", text="", calls=(ToolUse(id="1", name="look", arguments={"at": "x"}),)),
        Message(role="tool", text="nothing there", answers="1"),
        tools=(LOOK,),
    )
    async with ModelServer(["", move]) as server, open_wire(api, server.url) as wire:
        *parts, ended = await collect_parts(wire, model_call)

    assert isinstance(ended, ReplyEnd)
    in_process = await collect_parts(ScriptedWire(["", move]), model_call)
    assert merge_texts([*parts, structs.replace(ended, sealed="", model="")]) == merge_texts(in_process)
    assert bool(ended.sealed) == api.seals(move)
    assert server.calls[0].call.messages == model_call.messages


async def test_a_call_sends_its_key_its_tools_and_its_conversation(api: Api) -> None:
    async with ModelServer(api_key=KEY) as server, open_wire(api, server.url) as wire:
        await collect_parts(wire, make_call(key="run/größe#1", tools=(LOOK,)))

    [received] = server.calls
    assert received.is_streaming
    assert received.headers["idempotency-key"] == "run/größe#1"
    keys = ("authorization", "x-api-key", "anthropic-version")
    assert {name: received.headers[name] for name in keys if name in received.headers} == api.key_headers
    assert received.call.model == "m"
    assert received.call.system == "You are a."
    assert received.call.messages == (HI,)
    [tool] = received.call.tools
    assert (tool.name, tool.description, tool.parameters) == (LOOK.name, LOOK.description, LOOK.parameters)


async def test_a_conversation_of_more_than_a_megabyte_is_sent(api: Api) -> None:
    long = "x" * 3_000_000
    async with ModelServer() as server, open_wire(api, server.url) as wire:
        await collect_parts(wire, make_call(Message(role="user", text=long)))

    assert server.calls[0].call.messages[0].text == long


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_a_transient_failure_is_retryable_and_says_when(api: Api, status: int) -> None:
    script = [{"says": "ok", "fails": {"status": status, "retry_after": 1.5, "times": 1, "message": "too  much\nwork"}}]
    async with ModelServer(script) as server, open_wire(api, server.url) as wire:
        with pytest.raises(
            OutsideFailed, match=rf"^{api.name} returned {status} for the model m: too much work$"
        ) as caught:
            await collect_parts(wire, make_call())
        again = await collect_parts(wire, make_call())

    assert (caught.value.retryable, caught.value.retry_after, caught.value.status) == (True, 1.5, status)
    assert again[0] == Text("ok")
    assert server.count("run/turn#1/call#1") == 2


@pytest.mark.parametrize("status", [400, 402, 404, 413, 422])
async def test_a_permanent_failure_is_not_retryable(api: Api, status: int) -> None:
    async with ModelServer([{"fails": {"status": status}}]) as server, open_wire(api, server.url) as wire:
        with pytest.raises(OutsideFailed, match=str(status)) as caught:
            await collect_parts(wire, make_call())

    assert (caught.value.retryable, caught.value.retry_after) == (False, None)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("", "returned 401, and {key} is not set: the API key is missing or wrong"),
        ("sk-wrong-one", r"returned 403 for the key in {key}: .*\[{key}\]"),
    ],
)
async def test_a_refused_key_is_named_by_its_variable_and_never_shown(api: Api, given: str, sentence: str) -> None:
    async with ModelServer(api_key=KEY) as server, open_wire(api, server.url, given) as wire:
        with pytest.raises(OutsideFailed, match=f"{api.name} {sentence.format(key=api.key_name)}") as caught:
            await collect_parts(wire, make_call())

    assert "sk-wrong-one" not in str(caught.value)
    assert not caught.value.retryable


async def test_a_key_with_a_trailing_line_break_is_accepted(api: Api) -> None:
    async with ModelServer("in", api_key=KEY) as server, open_wire(api, server.url, f"{KEY}\n") as wire:
        parts = await collect_parts(wire, make_call())

    assert parts[0] == Text("in")


async def test_half_a_stream_is_delivered_before_the_call_fails(api: Api) -> None:
    script = [{"says": "abcdefgh", "pieces": 4, "half": 1}]
    async with ModelServer(script) as server, open_wire(api, server.url) as wire:
        first: list[ReplyPart] = []
        with pytest.raises(OutsideFailed, match=f"{api.name} disconnected in the middle of its reply") as caught:
            async for part in wire.stream(make_call()):
                first.append(part)
        again = await collect_parts(wire, make_call())

    assert merge_texts(first) == [Text("abcd")]
    assert caught.value.retryable
    assert "".join(part.text for part in again if isinstance(part, Text)) == "abcdefgh"


async def test_broken_json_is_a_retryable_failure(api: Api) -> None:
    async with ModelServer([{"says": "x", "garbled": True}]) as server, open_wire(api, server.url) as wire:
        with pytest.raises(OutsideFailed, match=f"{api.name} sent invalid JSON") as caught:
            await collect_parts(wire, make_call())

    assert caught.value.retryable


async def test_closing_the_stream_closes_the_connection_at_once(api: Api) -> None:
    script = [{"says": "abcdef", "pieces": 2, "pace": 3600}]
    async with ModelServer(script) as server, open_wire(api, server.url) as wire:
        async with aclosing(wire.stream(make_call())) as stream:
            assert await anext(stream) == Text("abc")
            assert server.in_flight == 1

        with anyio.fail_after(40):
            await server.wait_idle()


async def test_cancelling_a_silent_call_closes_the_connection_at_once(api: Api) -> None:
    async with ModelServer([{"silent": True}]) as server, open_wire(api, server.url) as wire:
        async with anyio.create_task_group() as group:
            group.start_soon(collect_parts, wire, make_call())
            await server.wait_calls(1)
            assert server.in_flight == 1
            group.cancel_scope.cancel()

        with anyio.fail_after(40):
            await server.wait_idle()


@pytest.mark.parametrize(("key", "connection"), [("", "close"), (KEY, None)])
async def test_no_connection_to_a_local_server_is_used_twice(api: Api, key: str, connection: str | None) -> None:
    async with ModelServer(["hi"]) as server, aiohttp.ClientSession() as client:
        url = server.url if api.name == "openai" else server.url.removesuffix("/v1")
        await collect_parts(api.wire(lambda: client, url, key), make_call())

    assert server.calls[0].headers.get("connection") == connection


@pytest.mark.parametrize(
    ("move", "limits", "said", "message"),
    [
        ({"silent": True}, CallLimits(first_token=0.05), [], "0.05 s (first_token_timeout in the settings)"),
        ({"says": "abcd", "pieces": 2, "pace": 3600}, CallLimits(silence=0.05), ["ab"], "0.05 s (silence_timeout in"),
    ],
)
async def test_a_server_that_is_silent_for_too_long_fails_the_call(
    api: Api, move: dict[str, Any], limits: CallLimits, said: list[str], message: str
) -> None:
    heard: list[ReplyPart] = []
    async with ModelServer([move]) as server, open_wire(api, server.url) as wire:
        with pytest.raises(OutsideFailed) as caught:
            async with aclosing(wire.stream(structs.replace(make_call(), limits=limits))) as stream:
                async for part in stream:
                    heard.append(part)
        with anyio.fail_after(40):
            await server.wait_idle()

    assert [part.text for part in heard if isinstance(part, Text)] == said
    assert f"{api.name} sent nothing for {message}" in str(caught.value)
    assert (caught.value.retryable, caught.value.is_silent) == (True, True)


async def test_the_arguments_of_a_long_tool_call_are_no_silence(api: Api) -> None:
    events = [api.start + api.call_start(0, "1", "look")]
    events += [api.call_part(0, text) for text in ('{"at": "', "x", "y", '"}')]
    events += [api.stop("tool_calls") + api.last_event]
    parts = [STREAM_HEAD, *(b"%x\r\n%b\r\n" % (len(event), event) for event in events), b"0\r\n\r\n"]
    call = structs.replace(make_call(tools=(LOOK,)), limits=CallLimits(first_token=0.4, silence=0.4))
    async with serve_in_pieces(parts, pause=0.15) as url, open_wire(api, url) as wire:
        heard = await collect_parts(wire, call)

    assert [part.call.arguments for part in heard if isinstance(part, ToolCallPart)] == [{"at": "xy"}]
    assert heard.count(Reasoning("")) >= 3  # so that the turn does not time out either


@asynccontextmanager
async def serve_in_pieces(pieces: list[bytes], *, pause: float) -> AsyncIterator[str]:
    """Serve one response, whose pieces are sent with a pause between them."""

    async def answer(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            for piece in pieces:
                await stream.send(piece)
                await anyio.sleep(pause)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, answer)
        yield f"http://127.0.0.1:{listener.listeners[0].extra(SocketAttribute.local_port)}/v1"
        group.cancel_scope.cancel()


async def test_an_unreachable_server_is_a_retryable_failure(api: Api) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://somebody:{KEY}@0.0.0.0:{taken.getsockname()[1]}/v1?key=1"

        async with open_wire(api, url) as wire:
            with pytest.raises(OutsideFailed, match=rf"{api.name} cannot be reached at http://0\.0\.0\.0:") as caught:
                await collect_parts(wire, make_call())

    assert caught.value.retryable
    assert KEY not in str(caught.value)


async def test_a_port_of_this_machine_where_nothing_listens_fails_at_once(api: Api) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://somebody:{KEY}@127.0.0.1:{taken.getsockname()[1]}/v1?key=1"

        async with open_wire(api, url) as wire:
            with pytest.raises(OutsideFailed, match=f"no {api.name} server is running at http") as caught:
                await collect_parts(wire, make_call())

    assert not caught.value.retryable
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["", "localhost:11434/v1", "ftp://host/v1", "http://", "http://[::1/v1", "api.anthropic.com"]
)
async def test_an_invalid_address_is_a_mistake(api: Api, url: str) -> None:
    with pytest.raises(Mistake, match="is not the URL of a model server"):
        async with open_wire(api, url):
            pass


async def test_many_calls_at_once_each_get_their_own_reply(api: Api) -> None:
    replies: dict[int, list[ReplyPart]] = {}

    async def ask(wire: Wire, n: int) -> None:
        replies[n] = await collect_parts(wire, make_call(Message(role="user", text=f"number {n}"), key=str(n)))

    async with ModelServer(latency=0.01) as server, open_wire(api, server.url) as wire:
        async with anyio.create_task_group() as group:
            for n in range(200):
                group.start_soon(ask, wire, n)

    assert all(replies[n][0] == Text(f"ok: number {n}") for n in range(200))
    assert all(server.count(str(n)) == 1 for n in range(200))


# Against servers whose replies are defined byte by byte


async def test_calls_one_after_the_other_share_a_connection(api: Api) -> None:
    async with (
        serve_replies([stream_response(hello(api))] * 3) as raw_server,
        open_wire(api, raw_server.url) as wire,
    ):
        for _ in range(3):
            await collect_parts(wire, make_call())

    assert raw_server.connections == 1


async def test_a_stream_that_ends_with_the_connection_is_complete(api: Api) -> None:
    events = hello(api).removesuffix(api.last_event).rstrip()

    parts = await receive_parts(api, b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + events)

    assert [type(part) for part in parts] == [Text, ReplyEnd]


async def test_a_connection_that_breaks_after_the_end_of_the_reply_does_no_harm(api: Api) -> None:
    parts = await receive_parts(api, stream_response(hello(api)).removesuffix(b"0\r\n\r\n"))

    assert [type(part) for part in parts] == [Text, ReplyEnd]


async def test_a_connection_that_stays_open_after_the_end_of_the_reply_does_not_hold_it_up(api: Api) -> None:
    with anyio.fail_after(40):
        parts = await receive_parts(api, stream_response(hello(api)).removesuffix(b"0\r\n\r\n"), closes=False)

    assert [type(part) for part in parts] == [Text, ReplyEnd]


@pytest.mark.parametrize("said", [True, False], ids=["with text", "without text"])
@pytest.mark.parametrize("ending", ["nothing", "no reason", "last event", "both"])
async def test_a_stream_that_ends_without_a_reason_broke_off(api: Api, ending: str, *, said: bool) -> None:
    endings = {"nothing": b"", "no reason": api.stop(None), "last event": api.last_event, "both": end(api, "")}

    with pytest.raises(OutsideFailed, match=f"{api.name} disconnected in the middle of its reply") as caught:
        await receive_parts(api, stream_response(api.start, api.text("hello") if said else b"", endings[ending]))

    assert caught.value.retryable


@pytest.mark.parametrize("body", [b"", b": keepalive\n\n", b'{"object": "something"}'])
async def test_a_response_that_is_no_reply_broke_off(api: Api, body: bytes) -> None:
    with pytest.raises(OutsideFailed, match=f"{api.name} disconnected in the middle of its reply") as caught:
        await receive_parts(api, http_response(body))

    assert caught.value.retryable


@pytest.mark.parametrize(
    ("error", "retryable", "status"),
    [
        *(({"type": f"{kind}_error"}, True, None) for kind in ("overloaded", "rate_limit", "api", "timeout", "server")),
        ({"type": "something_new"}, True, None),
        ({"code": 503}, True, 503),
        ({"code": "529"}, True, 529),
        *(
            ({"type": f"{kind}_error"}, False, None)
            for kind in ("invalid_request", "authentication", "permission", "not_found", "billing")
        ),
        ({"type": "request_too_large"}, False, None),
        ({"code": "context_length_exceeded"}, False, None),
        ({"code": 400}, False, 400),
        ({"code": "insufficient_quota", "status": 429}, False, 429),
        ({"type": "rate_limit_error", "details": {"error_code": "enforced_spend_limit_reached"}}, False, None),
    ],
)
async def test_an_error_in_the_stream_fails_the_call_with_the_providers_message(
    api: Api, error: dict[str, Any], status: int | None, *, retryable: bool
) -> None:
    event = api.error({"message": f"no more, {KEY}"} | error)

    with pytest.raises(OutsideFailed, match=rf"^{api.name} aborted its reply: no more, \[{api.key_name}\]$") as caught:
        await receive_parts(api, stream_response(api.start, api.text("hello"), event))

    assert (caught.value.retryable, caught.value.status) == (retryable, status)


async def test_an_error_in_the_stream_may_be_text_alone(api: Api) -> None:
    with pytest.raises(OutsideFailed, match=f"^{api.name} aborted its reply: overloaded$") as caught:
        await receive_parts(api, stream_response(api.start, api.error("overloaded")))

    assert caught.value.retryable


@pytest.mark.parametrize("in_stream", [True, False], ids=["in the stream", "as a response"])
async def test_a_conversation_that_is_too_long_is_reported_as_such(api: Api, *, in_stream: bool) -> None:
    error = {"type": "invalid_request_error", "message": "prompt is too long: 300000 tokens > 200000 maximum"}
    body = msgspec.json.encode({"type": "error", "error": error})
    reply = stream_response(api.start, api.error(error)) if in_stream else http_response(body, "400 Bad Request")

    with pytest.raises(OutsideFailed, match="prompt is too long") as caught:
        await receive_parts(api, reply)

    assert (caught.value.is_too_long, caught.value.retryable) == (True, False)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "the words", "code": "x"}}', "the words"),
        (b'{"type": "error", "error": {"type": "x", "message": "the words"}}', "the words"),
        (b'{"error": "the words"}', "the words"),
        (b'{"message": "the words"}', "the words"),
        (b'{"detail": [{"msg": "the words", "loc": []}]}', "the words"),
        (b'[{"error": {"code": 400, "message": "the words"}}]', "the words"),
        (b"<html>\n<b>the words</b>", "<html> <b>the words</b>"),
        (b'{"code": 7}', '{"code":7}'),
        (b"\xff\xfe", "��"),
        (b"", "Bad Request"),
        (b"[" * 60_000, "[" * 600),
    ],
)
async def test_the_providers_error_message_is_found_in_any_form_of_body(api: Api, body: bytes, words: str) -> None:
    with pytest.raises(OutsideFailed) as caught:
        await receive_parts(api, http_response(body, "400 Bad Request"))

    assert str(caught.value) == f"{api.name} returned 400 for the model m: {words}"


@pytest.mark.parametrize(
    "error",
    [
        {"code": "insufficient_quota"},
        {"type": "rate_limit_error", "details": {"error_code": "enforced_spend_limit_reached"}},
    ],
)
async def test_an_exhausted_quota_is_not_retryable(api: Api, error: dict[str, Any]) -> None:
    body = msgspec.json.encode({"error": {"message": "spent"} | error})

    with pytest.raises(OutsideFailed, match="returned 429 for the model m: spent") as caught:
        await receive_parts(api, http_response(body, "429 Too Many Requests"))

    assert not caught.value.retryable


async def test_a_redirect_is_reported_and_not_followed(api: Api) -> None:
    with pytest.raises(OutsideFailed, match="returned 307 for the model m: http://elsewhere/v1"):
        await receive_parts(api, http_response(b"", "307 Temporary Redirect", "Location: http://elsewhere/v1\r\n"))


async def test_a_key_that_the_provider_repeats_is_redacted_everywhere(api: Api) -> None:
    error = {"message": f"bad header: {KEY}, {KEY}"}

    with pytest.raises(OutsideFailed, match=rf"bad header: \[{api.key_name}\], \[{api.key_name}\]$"):
        await receive_parts(api, http_response(msgspec.json.encode({"error": error}), "400 Bad Request"))
    with pytest.raises(OutsideFailed, match=rf"aborted its reply: bad header: \[{api.key_name}\], \[{api.key_name}\]$"):
        await receive_parts(api, stream_response(api.error(error)))


async def test_the_query_of_an_address_is_kept(api: Api) -> None:
    async with (
        serve_replies([stream_response(hello(api))]) as raw_server,
        open_wire(api, raw_server.url.replace("/v1", "/a%2Fb/v1/?api-version=1")) as wire,
    ):
        await collect_parts(wire, make_call())

    assert raw_server.request_lines == [f"POST /a%2Fb/v1{api.path}?api-version=1 HTTP/1.1"]


async def test_a_configured_proxy_is_used(api: Api) -> None:
    async with (
        serve_replies([http_response(hello(api))]) as raw_server,
        open_wire(api, "http://models.invalid/v1", proxy=raw_server.url) as wire,
    ):
        parts = await collect_parts(wire, make_call())

    assert parts[0] == Text("hello")
    assert raw_server.request_lines == [f"POST http://models.invalid/v1{api.path} HTTP/1.1"]


async def test_a_reply_without_usage_is_estimated_and_says_so(api: Api) -> None:
    *_, ended = await receive_parts(api, stream_response(hello(api)))

    assert isinstance(ended, ReplyEnd)
    assert (ended.usage.output_tokens, ended.usage.calls, ended.usage.estimated) == (2, 1, 1)
    assert ended.usage.input_tokens > 10


@pytest.mark.parametrize(("reason", "stop"), [("max_tokens", "length"), (None, "stop")])
async def test_a_document_in_place_of_a_stream_is_complete_with_or_without_a_reason(
    api: Api, reason: str | None, stop: str
) -> None:
    text, ended = await receive_parts(api, http_response(b"\n" + api.document("hello", reason)))

    assert text == Text("hello")
    assert isinstance(ended, ReplyEnd)
    assert ended.stop == stop


@pytest.mark.parametrize("reason", ["length", "max_tokens"])
async def test_the_engine_finishes_a_reply_that_was_cut_off_with_that_reason(
    tmp_path: Path, api: Api, reason: str
) -> None:
    reply = stream_response(api.start, api.text("so far"), end(api, reason))
    async with (
        serve_replies([reply, reply]) as raw_server,
        open_wire(api, raw_server.url) as wire,
        RunStore(tmp_path / "s.db") as store,
    ):
        turn = Scope(Timeline("r", store.begin_run("r")), "lead", operation="lead", digest="d")
        spec = EngineSessionSpec(agent=Agent(name="lead"), system="You lead.")
        engine = ModelEngine(Model(wire=wire, name="m"), name="m")
        async with engine.open(spec) as session, session.ask("go", turn) as stream:
            pieces = [piece async for piece in stream]

    assert pieces == [Text("so far"), Text("so far"), Text(CUT_OFF_MARK), Finished("length")]


@pytest.mark.parametrize("reason", ["length", "max_tokens"])
async def test_a_reply_that_was_cut_off_is_recorded_as_such(studio: Studio, api: Api, reason: str) -> None:
    reply = stream_response(api.start, api.text("so far"), end(api, reason))
    rest = stream_response(api.start, api.text(" and the rest"), end(api, "stop"))
    async with serve_replies([reply, rest]) as raw_server, open_wire(api, raw_server.url) as wire:
        async with studio.app(engines={"mine": ModelEngine(Model(wire=wire, name="m"), name="m")}) as app:
            result = await app.run(Agent(name="lead", engine="mine"), "go")

    replied = [(event.text, event.stop) for event in studio.events(result, ModelReplied)]
    assert replied == [("so far", "length"), (" and the rest", "stop")]
    assert (result.outcome, result.text) == ("succeeded", "so far and the rest")


# Parsing replies: bytes in, parts out


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("stop", "stop"),
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_calls", "tool_calls"),
        ("tool_use", "tool_calls"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("model_length", "length"),
        ("model_context_window_exceeded", "length"),
        ("content_filter", "content_filter"),
        ("pause_turn", "pause_turn"),
        ("something_new", "something_new"),
    ],
)
def test_stop_reasons_are_translated_to_those_common_to_all_wires(api: Api, reason: str, stop: str) -> None:
    ended = parse_reply(api, api.start, api.text("hello"), end(api, reason))[-1]

    assert isinstance(ended, ReplyEnd)
    assert ended.stop == stop


def test_reported_usage_is_not_an_estimate(api: Api) -> None:
    ended = parse_reply(api, api.start, api.text("hello"), api.stop("stop"), api.usage(3, 2), api.last_event)[-1]

    assert ended == ReplyEnd(stop="stop", usage=Usage(input_tokens=3, output_tokens=2, calls=1))


def test_tool_calls_are_assembled_from_pieces_that_come_interleaved(api: Api) -> None:
    events = [
        api.call_start(0, "1", "look") + api.call_part(0, '{"at"'),
        api.call_start(1, "2", "go") + api.call_part(1, '{"to":'),
        api.call_part(0, ":1}") + api.call_part(1, "2}"),
    ]

    parts = parse_reply(api, api.start, *events, end(api, "tool_calls"))

    assert parts[:-1] == [
        ToolCallPart(ToolUse(id="1", name="look", arguments={"at": 1})),
        ToolCallPart(ToolUse(id="2", name="go", arguments={"to": 2})),
    ]


def test_tool_calls_without_ids_get_ids_of_their_own(api: Api) -> None:
    parts = parse_reply(api, api.start, api.call_start(0, "", "look"), api.call_start(1, "", "go"), end(api))

    assert parts[:-1] == [
        ToolCallPart(ToolUse(id="call-1-0", name="look")),
        ToolCallPart(ToolUse(id="call-1-1", name="go")),
    ]


@pytest.mark.parametrize("nothing", ["", "null", "{}", " "])
def test_missing_arguments_are_an_empty_object(api: Api, nothing: str) -> None:
    parts = parse_reply(api, api.start, api.call_start(0, "1", "look"), api.call_part(0, nothing), end(api))

    assert parts[0] == ToolCallPart(ToolUse(id="1", name="look", arguments={}))


@pytest.mark.parametrize("broken", ['{"at": ', "[1]", "7", "look at 1", '{"at": 1} more', "[" * 50_000])
def test_arguments_that_are_not_an_object_are_kept_verbatim(api: Api, broken: str) -> None:
    parts = parse_reply(api, api.start, api.call_start(0, "1", "look"), api.call_part(0, broken), end(api))

    assert parts[0] == ToolCallPart(ToolUse(id="1", name="look", unreadable=broken))


@pytest.mark.parametrize(
    ("before", "changed"),
    [
        (b"", (b"data: ", b"data:")),
        (b"", (b"\n", b"\r\n")),
        (b": keepalive\n\n:\n\n", (b"", b"")),
        (b"event: message\nid: 7\nretry: 100\n", (b"", b"")),
        (b"data:\n\n", (b"", b"")),
        (b"data: \r\n\r\n", (b"", b"")),
        (b" data: {\n\nmetadata: {\n\n", (b"", b"")),
    ],
)
def test_events_may_be_written_in_any_way_that_the_standard_allows(
    api: Api, before: bytes, changed: tuple[bytes, bytes]
) -> None:
    parts = parse_reply(api, before + hello(api).replace(*changed) if changed[0] else before + hello(api))

    assert [type(part) for part in parts] == [Text, ReplyEnd]
    assert parts[0] == Text("hello")


def test_events_after_the_end_are_ignored(api: Api) -> None:
    assert parse_reply(api, hello(api), api.text("more")) == parse_reply(api, hello(api))
    assert parse_reply(api, hello(api) + api.text("more")) == parse_reply(api, hello(api))


@pytest.mark.parametrize("broken", [b"data: {\n\n", b"data: \xff\n\n", b"data: " + b"[" * 50_000 + b"\n", b"invalid"])
def test_parts_before_an_unreadable_event_are_delivered(api: Api, broken: bytes) -> None:
    event = api.invalid_event if broken == b"invalid" else broken
    stream = make_parser(api).feed(api.text("hello") + event + api.text("hello"))

    assert next(stream) == Text("hello")
    with pytest.raises(OutsideFailed, match="sent invalid JSON") as caught:
        next(stream)

    assert caught.value.retryable


def test_a_line_that_never_ends_fails_the_call(api: Api) -> None:
    reply = make_parser(api)
    list(reply.feed(b"x" * LONGEST_LINE))

    with pytest.raises(OutsideFailed, match="sent a line of more than"):
        list(reply.feed(b"x"))


def long_stream(api: Api) -> bytes:
    """Return a reply with parts of every kind."""
    events = [
        b": keepalive\r\n\r\n",
        api.start,
        api.reasoning("nachdenken über 🎻"),
        api.text("naïve "),
        api.text("🎻 text\n").replace(b"\n\n", b"\r\n\r\n"),
        api.call_start(0, "1", "look"),
        api.call_part(0, '{"at": "ü'),
        api.call_part(0, '"}'),
        api.stop("tool_calls").replace(b"data: ", b"data:"),
        api.usage(3, 2),
        api.last_event,
    ]
    return b"".join(events)


@given(data=st.data())
def test_a_reply_parses_the_same_however_it_is_split_into_packets(api: Api, data: st.DataObject) -> None:
    body = data.draw(st.sampled_from([long_stream(api), api.document("naïve 🎻", "length")]))
    cuts = data.draw(st.lists(st.integers(min_value=0, max_value=len(body))))

    packets = [body[start:stop] for start, stop in pairwise([0, *sorted(cuts), len(body)])]

    assert parse_reply(api, *packets) == parse_reply(api, body)


def test_a_reply_that_arrives_byte_by_byte_parses_the_same(api: Api) -> None:
    stream = long_stream(api)

    *parts, ended = parse_reply(api, *(stream[n : n + 1] for n in range(len(stream))))

    assert [*parts, ended] == parse_reply(api, stream)
    assert parts == [
        Reasoning("nachdenken über 🎻"),
        Text("naïve "),
        Text("🎻 text\n"),
        ToolCallPart(ToolUse(id="1", name="look", arguments={"at": "ü"})),
    ]
    assert isinstance(ended, ReplyEnd)
    assert (ended.stop, ended.usage) == ("tool_calls", Usage(input_tokens=3, output_tokens=2, calls=1))
