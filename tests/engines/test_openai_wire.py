"""What is specific to OpenAI's API. Behaviour that all adapters share is in test_every_wire.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp
import msgspec
import pytest

from podium.core.engine import Reasoning, Text
from podium.engines.model.http_wire import find_proxy, parse_retry_after
from podium.engines.model.model_wire import Message, ReplyEnd, ReplyPart, ToolCallPart
from podium.engines.model.openai_wire import OpenAIReplyFormat, OpenAIWire
from podium.engines.model.stream_events import ReplyParser
from podium.testing import ModelServer
from podium.values.errors import OutsideFailed
from podium.values.event import ToolUse
from podium.values.usage import Usage

from .outside import (
    KEY,
    STREAM_HEAD,
    chunk_body,
    collect_parts,
    http_response,
    make_call,
    make_failure,
    serve_replies,
)


@asynccontextmanager
async def open_wire(url: str, api_key: str = KEY) -> AsyncIterator[OpenAIWire]:
    async with aiohttp.ClientSession() as client:
        yield OpenAIWire(lambda: client, url, api_key)


# Requests


async def test_arguments_that_could_not_be_read_are_not_sent_back_to_servers_that_parse_them() -> None:
    broken = Message(role="assistant", text="", calls=(ToolUse(id="1", name="look", unreadable='{"at'),))
    async with ModelServer("one") as server, open_wire(server.url) as wire:
        with pytest.raises(OutsideFailed, match="script of m has no more steps"):
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


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_the_longest_reply_is_sent_under_the_name_that_the_server_knows(name: str) -> None:
    async with (
        serve_replies([STREAM_HEAD + chunk_body(TEXT_EVENT + END)] * 2) as raw_server,
        aiohttp.ClientSession() as client,
    ):
        wire = OpenAIWire(lambda: client, raw_server.url, limit_name=name)
        await collect_parts(wire, msgspec.structs.replace(make_call(), max_tokens=5))
        await collect_parts(wire, make_call())

    assert [body.get(name) for body in raw_server.bodies] == [5, None]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ("404 Not Found", {"message": "no such model"}),
        ("404 Not Found", {"message": "model: gpt-5-minj", "type": "not_found_error"}),
        ("400 Bad Request", {"message": "Model Not Exist", "type": "invalid_request_error"}),
        ("400 Bad Request", {"message": "gpt-5-minj is not a valid model ID", "code": 400}),
        ("400 Bad Request", {"message": "wrong", "code": "model_not_found"}),
        ("422 Unprocessable Entity", {"message": "Invalid model: gpt-5-minj"}),
    ],
)
async def test_a_model_that_the_provider_does_not_have_is_reported_with_similar_ones(
    status: str, error: dict[str, object]
) -> None:
    refusal = http_response(msgspec.json.encode({"error": error}), status)
    async with serve_replies([refusal]) as raw_server, open_wire(raw_server.url) as wire:
        with pytest.raises(OutsideFailed, match="; similar models: gpt-5-mini, ") as raised:
            await collect_parts(wire, msgspec.structs.replace(make_call(), model="gpt-5-minj"))

    assert raised.value.is_unknown_model


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ("404 Not Found", "page not found"),
        ("400 Bad Request", "the tools of this model are invalid"),
        ("500 Internal Server Error", "model not found"),
    ],
)
async def test_other_refusals_do_not_mean_that_the_model_is_unknown(status: str, message: str) -> None:
    refusal = http_response(msgspec.json.encode({"error": {"message": message}}), status)
    async with serve_replies([refusal]) as raw_server, open_wire(raw_server.url) as wire:
        with pytest.raises(OutsideFailed) as raised:
            await collect_parts(wire, msgspec.structs.replace(make_call(), model="gpt-5-minj"))

    assert not raised.value.is_unknown_model
    assert "similar models" not in str(raised.value)


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


# Replies, over a connection


TEXT_EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"hello"}}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


async def receive_parts(reply: bytes) -> list[ReplyPart]:
    async with serve_replies([reply], closes=True) as raw_server, open_wire(raw_server.url) as wire:
        return await collect_parts(wire, make_call())


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


# Parsing replies: bytes in, pieces out


def parse_reply(*packets: bytes) -> list[ReplyPart]:
    reply = ReplyParser(OpenAIReplyFormat(), make_failure=make_failure, sent=0, place=1)
    parts = [part for packet in packets for part in reply.feed(packet)]
    return parts + list(reply.finish_reply())


def event(**delta: object) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode({"choices": [{"index": 0, "delta": delta}]})


def parse_tool_uses(*deltas: object) -> list[ToolUse]:
    """Return the tool calls that these deltas, one for each event, add up to."""
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
