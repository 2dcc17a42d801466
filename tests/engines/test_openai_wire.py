from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from itertools import pairwise

import aiohttp
import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.core.engine import Reasoning, Text
from podium.engines.model.http_wire import find_proxy, parse_retry_after
from podium.engines.model.model_wire import Message, ReplyEnd, ReplyPart, ToolCallPart
from podium.engines.model.openai_wire import OpenAIReplyFormat, OpenAIWire
from podium.engines.model.stream_events import LONGEST_LINE, ReplyParser
from podium.engines.script import Move, ScriptedWire, ToolCall
from podium.testing import ModelServer
from podium.values.errors import Mistake, OutsideFailed
from podium.values.event import ToolUse
from podium.values.usage import Usage

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


@asynccontextmanager
async def open_wire(url: str, api_key: str = KEY) -> AsyncIterator[OpenAIWire]:
    async with aiohttp.ClientSession() as client:
        yield OpenAIWire(lambda: client, url, api_key)


# Against a scripted model server


@pytest.mark.parametrize(
    "move",
    [
        Move(says="hello"),
        Move(says="naïve 🎻 text", pieces=7, reasoning="let me see"),
        Move(says="looking", calls=(ToolCall(name="look", arguments={"at": [1, "ü"]}), ToolCall(name="go"))),
        Move(calls=(ToolCall(name="look", arguments={"at": 1}),), garbled=True),
        Move(says="x", usage=Usage(input_tokens=9, output_tokens=8, cached_tokens=7)),
        Move(says="slow", pieces=4, delay=0.001, pace=0.001),
        Move(),
    ],
)
async def test_a_script_over_http_gives_the_same_parts_as_in_process(move: Move) -> None:
    model_call = make_call(
        Message(role="user", text="hi"),
        Message(role="assistant", text="", calls=(ToolUse(id="1", name="look", arguments={"at": "x"}),)),
        Message(role="tool", text="nothing there", answers="1"),
        tools=(LOOK,),
    )
    async with ModelServer(["", move]) as server, open_wire(server.url) as wire:
        over_http = await collect_parts(wire, model_call)

    in_process = await collect_parts(ScriptedWire(["", move]), model_call)

    assert merge_texts(over_http) == merge_texts(in_process)
    assert server.calls[0].call.messages == model_call.messages


async def test_a_call_sends_its_key_its_tools_and_its_conversation() -> None:
    async with ModelServer() as server, open_wire(server.url) as wire:
        await collect_parts(wire, make_call(key="run/größe#1", tools=(LOOK,)))

    [received] = server.calls
    assert received.headers["idempotency-key"] == "run/größe#1"
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert received.call.model == "m"
    assert received.call.system == "You are a."
    assert received.call.messages == (Message(role="user", text="hi"),)
    [tool] = received.call.tools
    assert (tool.name, tool.description, tool.parameters) == (LOOK.name, LOOK.description, LOOK.parameters)


async def test_arguments_that_could_not_be_read_are_not_sent_back_to_servers_that_parse_them() -> None:
    broken = Message(role="assistant", text="", calls=(ToolUse(id="1", name="look", unreadable='{"at'),))
    async with ModelServer("one") as server, open_wire(server.url) as wire:
        with pytest.raises(OutsideFailed, match="script of m has no more moves"):
            await collect_parts(wire, make_call(Message(role="user", text="hi"), broken))

    assert server.calls[0].call.messages[1].calls == (ToolUse(id="1", name="look", arguments={}),)


@pytest.mark.parametrize("asks", [True, False])
async def test_usage_is_requested_only_from_servers_that_need_it(*, asks: bool) -> None:
    async with (
        serve_replies([STREAM_HEAD + chunk_body(TEXT_EVENT + END)]) as raw_server,
        aiohttp.ClientSession() as client,
    ):
        await collect_parts(OpenAIWire(lambda: client, raw_server.url, asks_usage=asks), make_call())

    assert raw_server.bodies[0].get("stream_options") == ({"include_usage": True} if asks else None)


async def test_sealed_data_is_sent_back_with_the_message_it_came_with() -> None:
    signed = delta(0, "look", "{}", "1") | {"extra_content": {"google": {"thought_signature": "abc"}}}
    thought = event(reasoning_content="let me ") + event(reasoning_content="look")
    replies = [thought + event(tool_calls=[signed, delta(1, "go", "{}", "2")]) + END, TEXT_EVENT + END]
    async with (
        serve_replies([STREAM_HEAD + chunk_body(reply) for reply in replies]) as raw_server,
        open_wire(raw_server.url) as wire,
    ):
        *_, ended = await collect_parts(wire, make_call())
        assert isinstance(ended, ReplyEnd)
        calls = (ToolUse(id="1", name="look"), ToolUse(id="2", name="go"))
        said = Message(role="assistant", text="", calls=calls, sealed=ended.sealed)
        await collect_parts(wire, make_call(Message(role="user", text="hi"), said))

    message = raw_server.bodies[1]["messages"][-1]
    assert message["reasoning_content"] == "let me look"
    assert [used.get("extra_content") for used in message["tool_calls"]] == [signed["extra_content"], None]


@pytest.mark.parametrize("sealed", ["", '[{"type": "thinking"}]', "{", "nonsense"])
async def test_sealed_data_of_another_wire_is_not_sent(sealed: str) -> None:
    said = Message(role="assistant", text="", calls=(ToolUse(id="1", name="look"),), sealed=sealed)
    async with (
        serve_replies([STREAM_HEAD + chunk_body(TEXT_EVENT + END)]) as raw_server,
        open_wire(raw_server.url) as wire,
    ):
        await collect_parts(wire, make_call(Message(role="user", text="hi"), said))

    assert raw_server.bodies[0]["messages"][-1].keys() == {"role", "content", "tool_calls"}


def test_nothing_is_sealed_where_no_tool_is_called() -> None:
    assert parse_reply(event(reasoning_content="hm"), END)[-1] == ReplyEnd(
        stop="stop", usage=Usage(calls=1, estimated=1, output_tokens=1)
    )


async def test_calls_one_after_the_other_share_a_connection() -> None:
    async with (
        serve_replies([STREAM_HEAD + chunk_body(TEXT_EVENT + END)] * 3) as raw_server,
        open_wire(raw_server.url) as wire,
    ):
        for _ in range(3):
            await collect_parts(wire, make_call())

    assert raw_server.connections == 1


async def test_a_conversation_of_more_than_a_megabyte_is_sent() -> None:
    long = "x" * 3_000_000
    async with ModelServer() as server, open_wire(server.url) as wire:
        await collect_parts(wire, make_call(Message(role="user", text=long)))

    assert server.calls[0].call.messages[0].text == long


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_a_transient_failure_is_retryable_and_says_when(status: int) -> None:
    script = [{"says": "ok", "fails": {"status": status, "retry_after": 1.5, "times": 1, "message": "too  much\nwork"}}]
    async with ModelServer(script) as server, open_wire(server.url) as wire:
        with pytest.raises(
            OutsideFailed, match=rf"^openai answered {status} for the model m: too much work$"
        ) as caught:
            await collect_parts(wire, make_call())
        again = await collect_parts(wire, make_call())

    assert (caught.value.retryable, caught.value.retry_after, caught.value.status) == (True, 1.5, status)
    assert again[0] == Text("ok")
    assert server.count("run/turn#1/call#1") == 2


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_a_permanent_failure_is_not_retryable(status: int) -> None:
    async with ModelServer([{"fails": {"status": status}}]) as server, open_wire(server.url) as wire:
        with pytest.raises(OutsideFailed, match="the script says so") as caught:
            await collect_parts(wire, make_call())

    assert (caught.value.retryable, caught.value.retry_after) == (False, None)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("", "openai answered 401, and there is no key in OPENAI_API_KEY: the API key is wrong"),
        ("sk-wrong-one", r"openai answered 403 to the key in OPENAI_API_KEY: .*\[OPENAI_API_KEY\]"),
    ],
)
async def test_a_refused_key_is_named_by_its_variable_and_never_shown(given: str, sentence: str) -> None:
    async with ModelServer(api_key=KEY) as server, open_wire(server.url, api_key=given) as wire:
        with pytest.raises(OutsideFailed, match=sentence) as caught:
            await collect_parts(wire, make_call())

    assert "sk-wrong-one" not in str(caught.value)
    assert not caught.value.retryable


async def test_a_key_with_a_trailing_line_break_is_accepted() -> None:
    async with ModelServer("in", api_key=KEY) as server, open_wire(server.url, api_key=f"{KEY}\n") as wire:
        parts = await collect_parts(wire, make_call())

    assert parts[0] == Text("in")


async def test_half_a_stream_is_delivered_before_the_call_fails() -> None:
    async with ModelServer([{"says": "abcdefgh", "pieces": 4, "half": 1}]) as server, open_wire(server.url) as wire:
        first: list[ReplyPart] = []
        with pytest.raises(OutsideFailed, match="openai broke off in the middle of its reply") as caught:
            async for part in wire.stream(make_call()):
                first.append(part)
        again = await collect_parts(wire, make_call())

    assert merge_texts(first) == [Text("abcd")]
    assert caught.value.retryable
    assert "".join(part.text for part in again if isinstance(part, Text)) == "abcdefgh"


async def test_broken_json_is_a_retryable_failure() -> None:
    async with ModelServer([{"says": "x", "garbled": True}]) as server, open_wire(server.url) as wire:
        with pytest.raises(OutsideFailed, match="openai sent JSON that cannot be read") as caught:
            await collect_parts(wire, make_call())

    assert caught.value.retryable


async def test_closing_the_stream_closes_the_connection_at_once() -> None:
    script = [{"says": "abcdef", "pieces": 2, "pace": 3600}]
    async with ModelServer(script) as server, open_wire(server.url) as wire:
        async with aclosing(wire.stream(make_call())) as stream:
            assert await anext(stream) == Text("abc")
            assert server.in_flight == 1

        with anyio.fail_after(40):
            await server.wait_idle()


async def test_cancelling_a_silent_call_closes_the_connection_at_once() -> None:
    async with ModelServer([{"silent": True}]) as server, open_wire(server.url) as wire:
        async with anyio.create_task_group() as group:
            group.start_soon(collect_parts, wire, make_call())
            await server.wait_calls(1)
            assert server.in_flight == 1
            group.cancel_scope.cancel()

        with anyio.fail_after(40):
            await server.wait_idle()


async def test_an_unreachable_server_is_a_retryable_failure() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://somebody:{KEY}@127.0.0.1:{taken.getsockname()[1]}/v1?key=1"

        async with open_wire(url) as wire:
            with pytest.raises(OutsideFailed, match=r"openai cannot be reached at http://127\.0\.0\.1:") as caught:
                await collect_parts(wire, make_call())

    assert caught.value.retryable
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("url", ["", "localhost:11434/v1", "ftp://host/v1", "http://", "http://[::1/v1"])
async def test_an_invalid_address_is_a_mistake(url: str) -> None:
    with pytest.raises(Mistake, match="is not the URL of a model server"):
        async with open_wire(url):
            pass


async def test_many_calls_at_once_each_get_their_own_reply() -> None:
    replies: dict[int, list[ReplyPart]] = {}

    async def ask(wire: OpenAIWire, n: int) -> None:
        replies[n] = await collect_parts(wire, make_call(Message(role="user", text=f"number {n}"), key=str(n)))

    async with (
        ModelServer(latency=0.01) as server,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client,
    ):
        wire = OpenAIWire(lambda: client, server.url)
        async with anyio.create_task_group() as group:
            for n in range(200):
                group.start_soon(ask, wire, n)

    assert all(replies[n][0] == Text(f"ok: number {n}") for n in range(200))
    assert all(server.count(str(n)) == 1 for n in range(200))


# Against servers with habits of their own, byte by byte


TEXT_EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"hello"}}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


async def receive_parts(reply: bytes, *, closes: bool = True) -> list[ReplyPart]:
    async with serve_replies([reply], closes=closes) as raw_server, open_wire(raw_server.url) as wire:
        return await collect_parts(wire, make_call())


async def test_a_reply_without_usage_is_estimated_and_says_so() -> None:
    parts = await receive_parts(STREAM_HEAD + chunk_body(TEXT_EVENT + END))

    assert isinstance(parts[-1], ReplyEnd)
    assert (parts[-1].usage.output_tokens, parts[-1].usage.calls, parts[-1].usage.estimated) == (2, 1, 1)
    assert parts[-1].usage.input_tokens > 10


async def test_a_document_in_place_of_a_stream_is_understood() -> None:
    document = msgspec.json.encode(
        {
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "role": "assistant",
                        "content": "hello",
                        "reasoning": "hm",
                        "tool_calls": [{"id": "x", "function": {"name": "look", "arguments": '{"at": 1}'}}],
                    },
                    "finish_reason": "tool_calls",
                }
            ],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}},
        }
    )

    assert await receive_parts(http_response(b"\n" + document)) == [
        Reasoning("hm"),
        Text("hello"),
        ToolCallPart(ToolUse(id="x", name="look", arguments={"at": 1})),
        ReplyEnd(stop="tool_calls", usage=Usage(input_tokens=3, output_tokens=2, cached_tokens=1, calls=1)),
    ]


async def test_a_stream_that_ends_with_the_connection_is_complete() -> None:
    end = END.removesuffix(b"data: [DONE]\n\n")

    parts = await receive_parts(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + TEXT_EVENT + end.rstrip())

    assert [type(part) for part in parts] == [Text, ReplyEnd]


async def test_a_connection_that_breaks_after_the_end_of_the_reply_does_no_harm() -> None:
    whole = STREAM_HEAD + chunk_body(TEXT_EVENT + END)

    parts = await receive_parts(whole.removesuffix(b"0\r\n\r\n"))

    assert [type(part) for part in parts] == [Text, ReplyEnd]


async def test_a_connection_that_stays_open_after_the_end_of_the_reply_does_not_hold_it_up() -> None:
    whole = STREAM_HEAD + chunk_body(TEXT_EVENT + END)

    with anyio.fail_after(40):
        parts = await receive_parts(whole.removesuffix(b"0\r\n\r\n"), closes=False)

    assert [type(part) for part in parts] == [Text, ReplyEnd]


@pytest.mark.parametrize("body", [TEXT_EVENT, TEXT_EVENT + b"data: [DONE]\n\n", b"", b": keepalive\n\n"])
async def test_a_stream_that_ends_without_a_reason_broke_off(body: bytes) -> None:
    with pytest.raises(OutsideFailed, match="broke off") as caught:
        await receive_parts(STREAM_HEAD + chunk_body(body) if body else STREAM_HEAD + b"0\r\n\r\n")

    assert caught.value.retryable


@pytest.mark.parametrize(
    ("error", "retryable", "status"),
    [
        ({"message": "overloaded", "type": "server_error"}, True, None),
        ({"message": "overloaded", "code": 503}, True, 503),
        ({"message": "overloaded", "code": "529"}, True, 529),
        ({"message": "overloaded: too long", "code": "context_length_exceeded"}, False, None),
        ({"message": "overloaded: no", "type": "invalid_request_error"}, False, None),
        ({"message": "overloaded: no", "code": 400}, False, 400),
        ("overloaded", True, None),
    ],
)
async def test_an_error_in_the_stream_fails_the_call_with_the_providers_message(
    error: object, status: int | None, *, retryable: bool
) -> None:
    event = b"data: %b\n\n" % msgspec.json.encode({"error": error})

    with pytest.raises(OutsideFailed, match="openai broke off its reply: overloaded") as caught:
        await receive_parts(STREAM_HEAD + chunk_body(TEXT_EVENT + event))

    assert (caught.value.retryable, caught.value.status) == (retryable, status)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "the words", "code": "x"}}', "the words"),
        (b'{"error": "the words"}', "the words"),
        (b'{"message": "the words"}', "the words"),
        (b'{"detail": [{"msg": "the words", "loc": []}]}', "the words"),
        (b'[{"error": {"code": 400, "message": "the words"}}]', "the words"),
        (b"<html>\n<b>the words</b>", "<html> <b>the words</b>"),
        (b'{"code": 7}', '{"code":7}'),
        (b"\xff\xfe", "��"),
        (b"", "Bad Request"),
        (b"[" * 60_000, "\\[" * 600),
    ],
)
async def test_the_providers_error_message_is_found_in_any_form_of_body(body: bytes, words: str) -> None:
    with pytest.raises(OutsideFailed) as caught:
        await receive_parts(http_response(body, "400 Bad Request"))

    assert str(caught.value) == f"openai answered 400 for the model m: {words.replace(chr(92), '')}"


async def test_an_exhausted_quota_is_not_retryable() -> None:
    body = b'{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}'

    with pytest.raises(OutsideFailed, match="quota") as caught:
        await receive_parts(http_response(body, "429 Too Many Requests"))

    assert not caught.value.retryable


async def test_a_redirect_is_reported_and_not_followed() -> None:
    with pytest.raises(OutsideFailed, match="answered 307 for the model m: http://elsewhere/v1"):
        await receive_parts(http_response(b"", "307 Temporary Redirect", "Location: http://elsewhere/v1\r\n"))


async def test_a_key_that_the_provider_repeats_is_redacted_everywhere() -> None:
    body = msgspec.json.encode({"error": {"message": f"bad header: Bearer {KEY}, {KEY}"}})

    with pytest.raises(OutsideFailed, match=r"bad header: Bearer \[OPENAI_API_KEY\], \[OPENAI_API_KEY\]$"):
        await receive_parts(http_response(body, "400 Bad Request"))
    with pytest.raises(OutsideFailed, match=r"broke off its reply: bad header: Bearer \[OPENAI_API_KEY\]"):
        await receive_parts(STREAM_HEAD + chunk_body(b"data: " + body + b"\n\n"))


async def test_an_address_with_a_query_keeps_it() -> None:
    async with (
        serve_replies([STREAM_HEAD + chunk_body(TEXT_EVENT + END)]) as raw_server,
        open_wire(raw_server.url.replace("/v1", "/a%2Fb/?api-version=1")) as wire,
    ):
        await collect_parts(wire, make_call())

    assert raw_server.request_lines == ["POST /a%2Fb/chat/completions?api-version=1 HTTP/1.1"]


async def test_a_configured_proxy_is_used() -> None:
    async with serve_replies([http_response(TEXT_EVENT + END)]) as raw_server, aiohttp.ClientSession() as client:
        wire = OpenAIWire(lambda: client, "http://models.invalid/v1", proxy=raw_server.url)
        parts = await collect_parts(wire, make_call())

    assert parts[0] == Text("hello")
    assert raw_server.request_lines == ["POST http://models.invalid/v1/chat/completions HTTP/1.1"]


def test_the_environment_names_the_proxy_and_its_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "localhost,.local")

    proxies = [
        find_proxy(url) for url in ("https://models.example/v1", "https://box.local/v1", "http://localhost:1/v1")
    ]

    assert proxies == ["http://proxy:3128", None, None]


def test_retry_after_is_seconds_or_a_date() -> None:
    now = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)

    assert parse_retry_after("7", now=now) == 7
    assert parse_retry_after("0.25", now=now) == 0.25
    assert parse_retry_after("Sun, 15 Nov 2026 12:00:30 GMT", now=now) == 30
    assert parse_retry_after("Sun, 15 Nov 2026 11:00:00 GMT", now=now) == 0
    assert parse_retry_after("-3", now=now) == 0
    assert [parse_retry_after(value, now=now) for value in ("", "soon", "nan", "inf", "99999999999999999999 Jan")] == [
        None
    ] * 5


# The reply by itself: bytes in, pieces out


def parse_reply(*packets: bytes) -> list[ReplyPart]:
    reply = ReplyParser(OpenAIReplyFormat(), make_failure=make_failure, sent=0, place=1)
    parts = [part for packet in packets for part in reply.feed(packet)]
    return parts + list(reply.finish_reply())


def event(**delta: object) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode({"choices": [{"index": 0, "delta": delta}]})


def parse_tool_uses(*deltas: object) -> list[ToolUse]:
    """The tools that these deltas, one an event, come to."""
    parts = parse_reply(*(event(tool_calls=[delta]) for delta in deltas), END)
    return [part.call for part in parts if isinstance(part, ToolCallPart)]


def delta(index: int | None, name: str | None, arguments: object, id: str | None = None) -> dict[str, object]:
    function = {"name": name, "arguments": arguments}
    return {"index": index, "id": id, "type": "function", "function": function}


ONE = ToolUse(id="1", name="look", arguments={"at": 1})
TWO = ToolUse(id="2", name="go", arguments={"to": 2})


@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param(
            [
                delta(0, "look", "", "1"),
                delta(0, None, '{"at"'),
                delta(1, "go", None, "2"),
                delta(1, None, '{"to":'),
                delta(0, None, ":1}"),
                delta(1, None, "2}"),
            ],
            id="in pieces by index, interleaved",
        ),
        pytest.param([delta(0, "look", '{"at":1}', "1"), delta(1, "go", '{"to":2}', "2")], id="whole"),
        pytest.param([delta(None, "look", '{"at":1}', "1"), delta(None, "go", '{"to":2}', "2")], id="whole, no index"),
        pytest.param([delta(0, "look", '{"at":1}', "1"), delta(0, "go", '{"to":2}', "2")], id="index always 0"),
        pytest.param([delta(0, "look", {"at": 1}, "1"), delta(0, "go", {"to": 2}, "2")], id="arguments as objects"),
        pytest.param(
            [
                delta(None, "look", '{"at"', "1"),
                delta(None, None, ":1}"),
                delta(None, "go", '{"to"', "2"),
                delta(None, None, ":2}"),
            ],
            id="in pieces without index",
        ),
        pytest.param(
            [
                delta(0, "look", '{"at"', "1"),
                delta(0, "look", ":1}", "1"),
                delta(1, "go", '{"to"', "2"),
                delta(1, "go", ":2}", "2"),
            ],
            id="id and name repeated",
        ),
    ],
)
def test_tool_calls_are_assembled_from_any_sequence_of_deltas(deltas: list[dict[str, object]]) -> None:
    assert parse_tool_uses(*deltas) == [ONE, TWO]


@pytest.mark.parametrize("index", [0, None])
def test_tool_calls_without_ids_get_ids_of_their_own(index: int | None) -> None:
    assert parse_tool_uses(delta(index, "look", '{"at":1}'), delta(index, "go", '{"to":2}', "")) == [
        ToolUse(id="call-1-0", name="look", arguments={"at": 1}),
        ToolUse(id="call-1-1", name="go", arguments={"to": 2}),
    ]


def test_two_whole_calls_without_arguments_or_ids_stay_two() -> None:
    assert [use.name for use in parse_tool_uses(delta(None, "look", ""), delta(None, "look", None))] == ["look", "look"]


@pytest.mark.parametrize("nothing", ["", None, "null", "{}", " ", {}])
def test_missing_arguments_are_an_empty_object(nothing: object) -> None:
    assert parse_tool_uses(delta(0, "look", nothing, "1")) == [ToolUse(id="1", name="look", arguments={})]


@pytest.mark.parametrize("broken", ['{"at": ', "[1]", "7", "look at 1", '{"at": 1} more', "[" * 50_000])
def test_arguments_that_are_not_an_object_are_kept_verbatim(broken: str) -> None:
    assert parse_tool_uses(delta(0, "look", broken, "1")) == [ToolUse(id="1", name="look", unreadable=broken)]


@pytest.mark.parametrize(
    ("packet", "expected"),
    [
        (event(content="hello"), [Text("hello")]),
        (event(content=""), []),
        (event(content=None, role="assistant"), []),
        (event(reasoning_content="hm"), [Reasoning("hm")]),
        (event(reasoning="hm", content="so"), [Reasoning("hm"), Text("so")]),
        (event(refusal="no"), [Text("no")]),
        (
            event(content=[{"type": "text", "text": "he"}, {"type": "image"}, {"type": "text", "text": "llo"}]),
            [Text("hello")],
        ),
        (TEXT_EVENT.replace(b"data: ", b"data:"), [Text("hello")]),
        (TEXT_EVENT.replace(b"\n", b"\r\n"), [Text("hello")]),
        (b": keepalive\n\n:\n\n" + TEXT_EVENT, [Text("hello")]),
        (b"event: message\nid: 7\nretry: 100\n" + TEXT_EVENT, [Text("hello")]),
        (b"data:\n\n" + TEXT_EVENT, [Text("hello")]),
        (TEXT_EVENT.replace(b'"index":0', b'"index":1'), []),
        (TEXT_EVENT.replace(b'"index":0,', b'"logprobs":null,"x":[{}],'), [Text("hello")]),
        (b'data: {"choices":[],"usage":null,"error":null}\n\n', []),
        (b'data: {"choices":null}\n\ndata: {"object":"ping"}\n\n', []),
    ],
)
def test_extra_and_missing_fields_are_tolerated(packet: bytes, expected: list[ReplyPart]) -> None:
    assert parse_reply(packet, END)[:-1] == expected


def test_the_last_usage_counts() -> None:
    counts = b"".join(b'data: {"usage":{"prompt_tokens":%d,"completion_tokens":null}}\n\n' % n for n in (1, 5))

    assert parse_reply(TEXT_EVENT, counts, END)[-1] == ReplyEnd(stop="stop", usage=Usage(input_tokens=5, calls=1))


@pytest.mark.parametrize(
    "broken", [b"data: {\n\n", b"data: \xff\n\n", b'data: {"choices": 7}\n\n', b"data: " + b"[" * 50_000 + b"\n"]
)
def test_parts_before_an_unreadable_event_are_delivered(broken: bytes) -> None:
    reply = ReplyParser(OpenAIReplyFormat(), make_failure=make_failure, sent=0, place=1)
    stream = reply.feed(TEXT_EVENT + broken + TEXT_EVENT)

    assert next(stream) == Text("hello")
    with pytest.raises(OutsideFailed, match="cannot be read") as caught:
        next(stream)

    assert caught.value.retryable


def test_a_line_that_never_ends_fails_the_call() -> None:
    reply = ReplyParser(OpenAIReplyFormat(), make_failure=make_failure, sent=0, place=1)
    list(reply.feed(b"x" * LONGEST_LINE))

    with pytest.raises(OutsideFailed, match="sent a line of more than"):
        list(reply.feed(b"x"))


STREAM = b"".join(
    [
        b": keepalive\r\n\r\n",
        event(role="assistant", content=""),
        event(reasoning_content="nachdenken über 🎻"),
        event(content="naïve "),
        event(content="🎻 text\n").replace(b"\n\n", b"\r\n\r\n"),
        event(tool_calls=[delta(0, "look", "", "1")]),
        event(tool_calls=[delta(0, None, '{"at": "ü')]),
        event(tool_calls=[delta(0, None, '"}')]),
        b'data:{"choices":[{"finish_reason":"tool_calls"}]}\n\n',
        b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n',
        b"data: [DONE]\n\n",
    ]
)
DOCUMENT = msgspec.json.encode({"choices": [{"message": {"content": "naïve 🎻"}, "finish_reason": "length"}]})


@given(cuts=st.lists(st.integers(min_value=0, max_value=len(STREAM))), body=st.sampled_from([STREAM, DOCUMENT]))
def test_a_reply_parses_the_same_however_it_is_split_into_packets(cuts: list[int], body: bytes) -> None:
    places = [0, *sorted(cuts), len(body)]
    packets = [body[start:end] for start, end in pairwise(places)]

    assert parse_reply(*packets) == parse_reply(body)


def test_a_reply_that_arrives_byte_by_byte_parses_the_same() -> None:
    assert parse_reply(*(STREAM[n : n + 1] for n in range(len(STREAM)))) == parse_reply(STREAM)
    assert parse_reply(STREAM)[1:3] == [Text("naïve "), Text("🎻 text\n")]
