"""What is specific to Anthropic's API. Behaviour that all adapters share is in test_every_wire.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest
from msgspec import structs

from podium.core.engine import Reasoning, Text
from podium.engines.model.anthropic_wire import AnthropicReplyFormat, AnthropicWire
from podium.engines.model.model_wire import Message, ReplyEnd, ReplyPart, ToolCallPart
from podium.engines.model.stream_events import ReplyParser
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
    serve_replies,
)


@asynccontextmanager
async def open_wire(url: str, api_key: str = KEY) -> AsyncIterator[AnthropicWire]:
    async with aiohttp.ClientSession() as client:
        yield AnthropicWire(lambda: client, url, api_key)


HI = Message(role="user", text="hi")
CACHED = {"type": "ephemeral"}


# Requests, byte for byte


def event(kind: str, **more: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **more}))


def text_block(index: int, *parts: str) -> bytes:
    """Return a text block."""
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": part} for part in parts))


def tool_block(index: int, id: str, name: str, *parts: str) -> bytes:
    """Return a tool call block."""
    start = {"type": "tool_use", "id": id, "name": name, "input": {}}
    return block(index, start, *({"type": "input_json_delta", "partial_json": part} for part in parts))


def thinking_block(index: int, thought: str, signature: str) -> bytes:
    start = {"type": "thinking", "thinking": "", "signature": ""}
    deltas = [{"type": "thinking_delta", "thinking": thought}, {"type": "signature_delta", "signature": signature}]
    return block(index, start, *deltas)


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    return (
        event("content_block_start", index=index, content_block=start)
        + b"".join(event("content_block_delta", index=index, delta=delta) for delta in deltas)
        + event("content_block_stop", index=index)
    )


def end_events(reason: str | None = "end_turn", **usage: int) -> bytes:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return event("message_delta", delta=delta, **({"usage": usage} if usage else {})) + event("message_stop")


START = event("message_start", message={"id": "msg_1", "type": "message", "role": "assistant", "content": []})
TEXT_BLOCK = text_block(0, "hello")


def stream_response(*events: bytes) -> bytes:
    return STREAM_HEAD + chunk_body(b"".join(events))


async def capture_body(*messages: Message, **more: Any) -> dict[str, Any]:
    """Return the request body for this conversation."""
    async with (
        serve_replies([stream_response(START, TEXT_BLOCK, end_events())]) as raw_server,
        open_wire(raw_server.url) as wire,
    ):
        await collect_parts(wire, structs.replace(make_call(*messages), **more))
    [body] = raw_server.bodies
    assert isinstance(body, dict)
    return body


async def test_a_prompt_is_marked_for_the_cache_after_tools_system_and_conversation() -> None:
    other = LOOK.__class__(name="go", description="Goes.", parameters={}, answer=LOOK.answer)

    body = await capture_body(
        HI, Message(role="assistant", text="yes?"), Message(role="user", text="go"), tools=(LOOK, other)
    )

    assert body == {
        "model": "m",
        "max_tokens": 8192,
        "stream": True,
        "system": [{"type": "text", "text": "You are a.", "cache_control": CACHED}],
        "tools": [
            {"name": "look", "description": "Looks.", "input_schema": LOOK.parameters},
            {"name": "go", "description": "Goes.", "input_schema": {"type": "object"}, "cache_control": CACHED},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "yes?"}]},
            {"role": "user", "content": [{"type": "text", "text": "go", "cache_control": CACHED}]},
        ],
    }


async def test_tool_results_and_the_text_after_them_are_one_message() -> None:
    calls = (ToolUse(id="1", name="look", arguments={"at": 1}), ToolUse(id="2", name="look", unreadable='{"at'))
    answers = (Message(role="tool", text="here", answers="1"), Message(role="tool", text="", answers="2"))

    body = await capture_body(
        HI, Message(role="assistant", text=" ", calls=calls), *answers, Message(role="user", text="well?")
    )

    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][1]["content"] == [
        {"type": "tool_use", "id": "1", "name": "look", "input": {"at": 1}},
        {"type": "tool_use", "id": "2", "name": "look", "input": {}},
    ]
    assert body["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "1", "content": "here"},
        {"type": "tool_result", "tool_use_id": "2", "content": ""},
        {"type": "text", "text": "well?", "cache_control": CACHED},
    ]


async def test_the_last_tool_result_is_marked_for_the_cache() -> None:
    said = Message(role="assistant", text="", calls=(ToolUse(id="1", name="look"),))

    body = await capture_body(HI, said, Message(role="tool", text="here", answers="1"))

    assert body["messages"][2]["content"][-1]["cache_control"] == CACHED
    assert "cache_control" not in body["messages"][0]["content"][0]


async def test_empty_messages_and_an_empty_system_prompt_are_left_out() -> None:
    body = await capture_body(HI, Message(role="assistant", text=""), Message(role="user", text="hello?"), system=" \n")

    assert "system" not in body
    assert "tools" not in body
    assert body["messages"] == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "hello?", "cache_control": CACHED}],
        }
    ]


async def test_call_ids_of_other_providers_are_sanitised() -> None:
    said = Message(role="assistant", text="", calls=(ToolUse(id="functions.look:0", name="look"),))

    body = await capture_body(HI, said, Message(role="tool", text="here", answers="functions.look:0"))

    assert body["messages"][1]["content"][0]["id"] == "functions_look_0"
    assert body["messages"][2]["content"][0]["tool_use_id"] == "functions_look_0"


@pytest.mark.parametrize(
    ("base", "path"),
    [
        ("", "/v1/messages"),
        ("/", "/v1/messages"),
        ("/v1", "/v1/messages"),
        ("/v1/", "/v1/messages"),
        ("/anthropic", "/anthropic/v1/messages"),
        ("/a%2Fb/v1?beta=true", "/a%2Fb/v1/messages?beta=true"),
    ],
)
async def test_the_address_may_end_in_the_version_or_not(base: str, path: str) -> None:
    async with (
        serve_replies([stream_response(START, TEXT_BLOCK, end_events())]) as raw_server,
        open_wire(raw_server.url.removesuffix("/v1") + base) as wire,
    ):
        await collect_parts(wire, make_call())

    assert raw_server.request_lines == [f"POST {path} HTTP/1.1"]


async def test_the_length_of_a_reply_can_be_set() -> None:
    async with (
        serve_replies([stream_response(START, TEXT_BLOCK, end_events())]) as raw_server,
        aiohttp.ClientSession() as client,
    ):
        await collect_parts(AnthropicWire(lambda: client, raw_server.url, max_tokens=7), make_call())

    assert raw_server.bodies[0]["max_tokens"] == 7


@pytest.mark.parametrize(("asked", "sent"), [(5, 5), (9_999, 8_192)])
async def test_a_call_can_limit_its_reply_further(asked: int, sent: int) -> None:
    async with (
        serve_replies([stream_response(START, TEXT_BLOCK, end_events())]) as raw_server,
        open_wire(raw_server.url) as wire,
    ):
        await collect_parts(wire, structs.replace(make_call(), max_tokens=asked))

    assert raw_server.bodies[0]["max_tokens"] == sent


async def test_signed_thinking_blocks_are_sent_back_unchanged_and_in_order() -> None:
    reply = [
        thinking_block(0, "first I look", "abc"),
        text_block(1, "Looking."),
        block(2, {"type": "redacted_thinking", "data": "xyz"}),
        tool_block(3, "1", "look", '{"at":', "1}"),
    ]
    async with (
        serve_replies(
            [stream_response(START, *reply, end_events("tool_use")), stream_response(START, TEXT_BLOCK, end_events())]
        ) as raw_server,
        open_wire(raw_server.url) as wire,
    ):
        *_, called, ended = await collect_parts(wire, make_call())
        assert isinstance(called, ToolCallPart)
        assert isinstance(ended, ReplyEnd)
        said = Message(role="assistant", text="Looking.", calls=(called.call,), sealed=ended.sealed)
        await collect_parts(wire, make_call(HI, said, Message(role="tool", text="here", answers="1")))

    assert raw_server.bodies[1]["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "first I look", "signature": "abc"},
        {"type": "text", "text": "Looking."},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "tool_use", "id": "1", "name": "look", "input": {"at": 1}},
    ]


@pytest.mark.parametrize("sealed", ["", '{"thinking": {"reasoning_content": "hm"}}', "[1]", "nonsense"])
async def test_sealed_data_of_another_wire_is_not_sent(sealed: str) -> None:
    body = await capture_body(HI, Message(role="assistant", text="hello", sealed=sealed))

    assert body["messages"][1]["content"] == [{"type": "text", "text": "hello"}]


# Replies, over a connection


async def receive_parts(reply: bytes) -> list[ReplyPart]:
    async with serve_replies([reply], closes=True) as raw_server, open_wire(raw_server.url) as wire:
        return await collect_parts(wire, make_call())


async def test_a_document_in_place_of_a_stream_is_understood() -> None:
    document = {
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "abc"},
            {"type": "text", "text": "hello"},
            {"type": "tool_use", "id": "x", "name": "look", "input": {"at": 1}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "cache_read_input_tokens": 1, "output_tokens": 2},
    }

    *parts, ended = await receive_parts(http_response(b"\n" + msgspec.json.encode(document)))

    assert parts == [
        Reasoning("hm"),
        Text("hello"),
        ToolCallPart(ToolUse(id="x", name="look", arguments={"at": 1})),
    ]
    assert isinstance(ended, ReplyEnd)
    assert (ended.stop, ended.usage) == (
        "tool_calls",
        Usage(input_tokens=4, output_tokens=2, cached_tokens=1, calls=1),
    )
    assert msgspec.json.decode(ended.sealed) == document["content"]


# Parsing replies: bytes in, pieces out


def parse_reply(*packets: bytes) -> list[ReplyPart]:
    reply = ReplyParser(AnthropicReplyFormat(), make_failure=make_failure, sent=0, place=1)
    parts = [part for packet in packets for part in reply.feed(packet)]
    return parts + list(reply.finish_reply())


@pytest.mark.parametrize(("before", "expected"), [(b"", [Text("too dangerous")]), (TEXT_BLOCK, [Text("hello")])])
def test_a_refusal_without_text_gets_its_explanation_as_text(before: bytes, expected: list[ReplyPart]) -> None:
    delta = {"stop_reason": "refusal", "stop_details": {"type": "refusal", "explanation": "too dangerous"}}

    *parts, ended = parse_reply(START, before, event("message_delta", delta=delta))

    assert parts == expected
    assert isinstance(ended, ReplyEnd)
    assert ended.stop == "content_filter"


def test_what_is_read_from_the_cache_and_written_to_it_is_input_too() -> None:
    counts = {"input_tokens": 10, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 3000}
    start = event("message_start", message={"usage": counts | {"output_tokens": 1}})

    ended = parse_reply(start, TEXT_BLOCK, end_events(output_tokens=15))[-1]

    used = Usage(input_tokens=3210, output_tokens=15, cached_tokens=3000, written_tokens=200, calls=1)
    assert ended == ReplyEnd(stop="stop", usage=used)


def test_the_larger_token_count_wins() -> None:
    start = event("message_start", message={"usage": {"input_tokens": 10, "output_tokens": 1}})

    ended = parse_reply(start, TEXT_BLOCK, end_events(input_tokens=0, cache_read_input_tokens=4, output_tokens=15))[-1]

    assert ended == ReplyEnd(stop="stop", usage=Usage(input_tokens=14, output_tokens=15, cached_tokens=4, calls=1))


ONE = ToolUse(id="1", name="look", arguments={"at": 1})
TWO = ToolUse(id="2", name="go", arguments={"to": 2})


@pytest.mark.parametrize(
    "blocks",
    [
        pytest.param(
            [tool_block(0, "1", "look", "", '{"at"', ":1}"), tool_block(1, "2", "go", '{"to":2}')], id="in pieces"
        ),
        pytest.param(
            [tool_block(0, "1", "look", '{"at":1}'), tool_block(0, "2", "go", '{"to":2}')], id="index always 0"
        ),
        pytest.param(
            [
                block(0, {"type": "tool_use", "id": "1", "name": "look", "input": {"at": 1}}),
                block(1, {"type": "tool_use", "id": "2", "name": "go", "input": {"to": 2}}),
            ],
            id="whole",
        ),
        pytest.param(
            [
                event("content_block_start", content_block={"type": "tool_use", "id": "1", "name": "look"}),
                event("content_block_delta", delta={"partial_json": '{"at":1}'}),
                event("content_block_start", content_block={"type": "tool_use", "id": "2", "name": "go"}),
                event("content_block_delta", delta={"partial_json": '{"to":2}'}),
            ],
            id="no index",
        ),
        pytest.param(
            [
                event("content_block_start", index=0, content_block={"type": "tool_use", "id": "1", "name": "look"}),
                event("content_block_start", index=1, content_block={"type": "tool_use", "id": "2", "name": "go"}),
                event("content_block_delta", index=1, delta={"partial_json": '{"to"'}),
                event("content_block_delta", index=0, delta={"partial_json": '{"at":1}'}),
                event("content_block_delta", index=1, delta={"partial_json": ":2}"}),
            ],
            id="interleaved",
        ),
        pytest.param(
            [
                block(0, {"type": "server_tool_use", "id": "s", "name": "search"}, {"partial_json": '{"q":1}'}),
                block(1, {"type": "web_search_tool_result", "content": [{"type": "x"}]}),
                tool_block(2, "1", "look", '{"at":1}'),
                tool_block(3, "2", "go", '{"to":2}'),
            ],
            id="among the server's own",
        ),
    ],
)
def test_tool_calls_are_assembled_from_any_sequence_of_events(blocks: list[bytes]) -> None:
    *parts, ended = parse_reply(START, *blocks, end_events("tool_use"))

    assert parts == [ToolCallPart(ONE), ToolCallPart(TWO)]
    assert isinstance(ended, ReplyEnd)
    assert ended.sealed == ""


def test_two_blocks_with_the_same_id_stay_two_calls() -> None:
    parts = parse_reply(START, tool_block(0, "1", "look"), tool_block(0, "1", "look"), end_events("tool_use"))

    assert parts[:-1] == [
        ToolCallPart(ToolUse(id="1", name="look")),
        ToolCallPart(ToolUse(id="call-1-1", name="look")),
    ]


def test_arguments_that_are_sent_twice_count_once() -> None:
    start = {"type": "tool_use", "id": "1", "name": "look", "input": {"at": 1}}

    parts = parse_reply(START, block(0, start, {"partial_json": '{"at":1}'}), end_events("tool_use"))

    assert parts[0] == ToolCallPart(ONE)


HELLO = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "hello"})


@pytest.mark.parametrize(
    ("packet", "expected"),
    [
        (TEXT_BLOCK, [Text("hello")]),
        (HELLO, [Text("hello")]),
        (HELLO.replace(b"data: ", b"data:"), [Text("hello")]),
        (HELLO.replace(b"\n", b"\r\n"), [Text("hello")]),
        (HELLO.partition(b"\n")[2], [Text("hello")]),
        (event("ping") + b": comment\n\n" + HELLO, [Text("hello")]),
        (HELLO.replace(b'"index":0', b'"index":0,"extra":[{}]'), [Text("hello")]),
        (block(0, {"type": "text", "text": "hello"}), [Text("hello")]),
        (thinking_block(0, "hm", "abc"), [Reasoning("hm")]),
        (thinking_block(0, "", "abc"), []),
        (block(0, {"type": "redacted_thinking", "data": "abc"}), []),
        (block(0, {"type": "hologram", "text": None, "x": 1}, {"type": "hologram_delta", "y": 2}), []),
        (event("content_block_delta", index=0, delta={"type": "citations_delta", "citation": {"a": 1}}), []),
        (event("something_new", delta=None, usage=None), []),
        (event("content_block_delta", index=0, delta=None), []),
        (event("message_delta", delta={"stop_reason": None}, usage=None), []),
    ],
)
def test_extra_and_missing_fields_are_tolerated(packet: bytes, expected: list[ReplyPart]) -> None:
    assert parse_reply(START, packet, end_events())[:-1] == expected
