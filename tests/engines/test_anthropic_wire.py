from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from itertools import pairwise
from typing import Any

import aiohttp
import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from podium.core.engine import Reasoning, Text
from podium.engines.model.anthropic_wire import AnthropicReplyFormat, AnthropicWire
from podium.engines.model.model_wire import Message, ReplyEnd, ReplyPart, ToolCallPart
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
async def open_wire(url: str, api_key: str = KEY) -> AsyncIterator[AnthropicWire]:
    async with aiohttp.ClientSession() as client:
        yield AnthropicWire(lambda: client, url, api_key)


HI = Message(role="user", text="hi")
CACHED = {"type": "ephemeral"}


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
async def test_a_script_over_http_gives_the_same_parts_as_in_process(move: Move) -> None:
    model_call = make_call(
        HI,
        Message(role="assistant", text="", calls=(ToolUse(id="1", name="look", arguments={"at": "x"}),)),
        Message(role="tool", text="nothing there", answers="1"),
        tools=(LOOK,),
    )
    async with ModelServer(["", move]) as server, open_wire(server.url) as wire:
        *parts, ended = await collect_parts(wire, model_call)

    assert isinstance(ended, ReplyEnd)
    in_process = await collect_parts(ScriptedWire(["", move]), model_call)
    assert merge_texts([*parts, structs.replace(ended, sealed="")]) == merge_texts(in_process)
    assert bool(ended.sealed) == bool(move.reasoning)
    assert server.calls[0].call.messages == model_call.messages


async def test_a_call_sends_its_key_its_tools_and_its_conversation() -> None:
    async with ModelServer(api_key=KEY) as server, open_wire(server.url) as wire:
        await collect_parts(wire, make_call(key="run/größe#1", tools=(LOOK,)))

    [received] = server.calls
    assert received.is_streaming
    assert received.headers["idempotency-key"] == "run/größe#1"
    assert received.headers["x-api-key"] == KEY
    assert received.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in received.headers
    assert received.call.model == "m"
    assert received.call.system == "You are a."
    assert received.call.messages == (HI,)
    [tool] = received.call.tools
    assert (tool.name, tool.description, tool.parameters) == (LOOK.name, LOOK.description, LOOK.parameters)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_a_transient_failure_is_retryable_and_says_when(status: int) -> None:
    script = [{"says": "ok", "fails": {"status": status, "retry_after": 1.5, "times": 1, "message": "too  much\nwork"}}]
    async with ModelServer(script) as server, open_wire(server.url) as wire:
        with pytest.raises(
            OutsideFailed, match=rf"^anthropic answered {status} for the model m: too much work$"
        ) as caught:
            await collect_parts(wire, make_call())
        again = await collect_parts(wire, make_call())

    assert (caught.value.retryable, caught.value.retry_after, caught.value.status) == (True, 1.5, status)
    assert again[0] == Text("ok")
    assert server.count("run/turn#1/call#1") == 2


@pytest.mark.parametrize("status", [400, 402, 404, 413, 422])
async def test_a_permanent_failure_is_not_retryable(status: int) -> None:
    async with ModelServer([{"fails": {"status": status}}]) as server, open_wire(server.url) as wire:
        with pytest.raises(OutsideFailed, match="the script says so") as caught:
            await collect_parts(wire, make_call())

    assert (caught.value.retryable, caught.value.retry_after) == (False, None)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("", "anthropic answered 401, and there is no key in ANTHROPIC_API_KEY: the API key is wrong"),
        ("sk-wrong-one", r"anthropic answered 403 to the key in ANTHROPIC_API_KEY: .*\[ANTHROPIC_API_KEY\]"),
    ],
)
async def test_a_refused_key_is_named_by_its_variable_and_never_shown(given: str, sentence: str) -> None:
    async with ModelServer(api_key=KEY) as server, open_wire(server.url, api_key=given) as wire:
        with pytest.raises(OutsideFailed, match=sentence) as caught:
            await collect_parts(wire, make_call())

    assert "sk-wrong-one" not in str(caught.value)
    assert not caught.value.retryable


async def test_half_a_stream_is_delivered_before_the_call_fails() -> None:
    async with ModelServer([{"says": "abcdefgh", "pieces": 4, "half": 1}]) as server, open_wire(server.url) as wire:
        first: list[ReplyPart] = []
        with pytest.raises(OutsideFailed, match="anthropic broke off in the middle of its reply") as caught:
            async for part in wire.stream(make_call()):
                first.append(part)
        again = await collect_parts(wire, make_call())

    assert merge_texts(first) == [Text("abcd")]
    assert caught.value.retryable
    assert "".join(part.text for part in again if isinstance(part, Text)) == "abcdefgh"


async def test_broken_json_is_a_retryable_failure() -> None:
    async with ModelServer([{"says": "x", "garbled": True}]) as server, open_wire(server.url) as wire:
        with pytest.raises(OutsideFailed, match="anthropic sent JSON that cannot be read") as caught:
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


async def test_an_unreachable_server_is_a_retryable_failure() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://somebody:{KEY}@127.0.0.1:{taken.getsockname()[1]}/v1?key=1"

        async with open_wire(url) as wire:
            with pytest.raises(OutsideFailed, match=r"anthropic cannot be reached at http://127\.0\.0\.1:") as caught:
                await collect_parts(wire, make_call())

    assert caught.value.retryable
    assert KEY not in str(caught.value)


async def test_an_invalid_address_is_a_mistake() -> None:
    with pytest.raises(Mistake, match="is not the URL of a model server"):
        async with open_wire("api.anthropic.com"):
            pass


# What is sent, to the byte


def event(kind: str, **more: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **more}))


def text_block(index: int, *parts: str) -> bytes:
    """A block of text."""
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": part} for part in parts))


def tool_block(index: int, id: str, name: str, *parts: str) -> bytes:
    """A call of a tool."""
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
    """The body that this conversation is sent as."""
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


# What comes back, over a connection


async def receive_parts(reply: bytes, *, closes: bool = True) -> list[ReplyPart]:
    async with serve_replies([reply], closes=closes) as raw_server, open_wire(raw_server.url) as wire:
        return await collect_parts(wire, make_call())


async def test_calls_one_after_the_other_share_a_connection() -> None:
    async with (
        serve_replies([stream_response(START, TEXT_BLOCK, end_events())] * 3) as raw_server,
        open_wire(raw_server.url) as wire,
    ):
        for _ in range(3):
            await collect_parts(wire, make_call())

    assert raw_server.connections == 1


async def test_a_connection_that_breaks_after_the_end_of_the_reply_does_no_harm() -> None:
    parts = await receive_parts(stream_response(START, TEXT_BLOCK, end_events()).removesuffix(b"0\r\n\r\n"))

    assert [type(part) for part in parts] == [Text, ReplyEnd]


async def test_a_connection_that_stays_open_after_the_end_of_the_reply_does_not_hold_it_up() -> None:
    with anyio.fail_after(40):
        parts = await receive_parts(
            stream_response(START, TEXT_BLOCK, end_events()).removesuffix(b"0\r\n\r\n"), closes=False
        )

    assert [type(part) for part in parts] == [Text, ReplyEnd]


@pytest.mark.parametrize(
    "body", [START, START + TEXT_BLOCK, START + TEXT_BLOCK + event("message_stop"), START + end_events(None)]
)
async def test_a_stream_that_ends_without_a_reason_broke_off(body: bytes) -> None:
    with pytest.raises(OutsideFailed, match="anthropic broke off in the middle of its reply") as caught:
        await receive_parts(stream_response(body))

    assert caught.value.retryable


@pytest.mark.parametrize(
    ("kind", "retryable"),
    [
        ("overloaded_error", True),
        ("rate_limit_error", True),
        ("api_error", True),
        ("timeout_error", True),
        ("something_new", True),
        ("invalid_request_error", False),
        ("authentication_error", False),
        ("permission_error", False),
        ("not_found_error", False),
        ("billing_error", False),
        ("request_too_large", False),
    ],
)
async def test_an_error_in_the_stream_fails_the_call_with_the_providers_message(kind: str, *, retryable: bool) -> None:
    error = event("error", error={"type": kind, "message": f"no more, {KEY}"}, request_id="req_1")

    with pytest.raises(
        OutsideFailed, match=r"^anthropic broke off its reply: no more, \[ANTHROPIC_API_KEY\]$"
    ) as caught:
        await receive_parts(stream_response(START, TEXT_BLOCK, error))

    assert caught.value.retryable == retryable


async def test_a_spending_limit_is_not_retryable() -> None:
    error = {"type": "rate_limit_error", "message": "spent", "details": {"error_code": "enforced_spend_limit_reached"}}
    body = msgspec.json.encode({"type": "error", "error": error, "request_id": "req_1"})

    with pytest.raises(OutsideFailed, match="answered 429 for the model m: spent") as caught:
        await receive_parts(http_response(body, "429 Too Many Requests"))

    assert not caught.value.retryable


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


async def test_a_document_is_complete_whether_it_says_why_it_ends_or_not() -> None:
    parts = await receive_parts(http_response(b'{"type": "message", "content": [{"type": "text", "text": "hello"}]}'))

    assert parts[0] == Text("hello")
    assert isinstance(parts[1], ReplyEnd)
    assert parts[1].stop == "stop"


# The reply by itself: bytes in, pieces out


def parse_reply(*packets: bytes) -> list[ReplyPart]:
    reply = ReplyParser(AnthropicReplyFormat(), make_failure=make_failure, sent=0, place=1)
    parts = [part for packet in packets for part in reply.feed(packet)]
    return parts + list(reply.finish_reply())


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("pause_turn", "pause_turn"),
        ("something_new", "something_new"),
    ],
)
def test_stop_reasons_are_translated_to_those_common_to_all_wires(reason: str, stop: str) -> None:
    ended = parse_reply(START, TEXT_BLOCK, end_events(reason))[-1]

    assert isinstance(ended, ReplyEnd)
    assert ended.stop == stop


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


def test_a_reply_without_usage_is_estimated_and_says_so() -> None:
    ended = parse_reply(START, TEXT_BLOCK, end_events())[-1]

    assert ended == ReplyEnd(stop="stop", usage=Usage(output_tokens=2, calls=1, estimated=1))


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


def test_tool_calls_without_ids_get_ids_of_their_own() -> None:
    parts = parse_reply(START, tool_block(0, "", "look"), tool_block(1, "", "go"), end_events("tool_use"))

    assert parts[:-1] == [
        ToolCallPart(ToolUse(id="call-1-0", name="look")),
        ToolCallPart(ToolUse(id="call-1-1", name="go")),
    ]


@pytest.mark.parametrize("broken", ['{"at": ', "[1]", "7", "look at 1", '{"at": 1} more'])
def test_arguments_that_are_not_an_object_are_kept_verbatim(broken: str) -> None:
    parts = parse_reply(START, tool_block(0, "1", "look", broken), end_events("tool_use"))

    assert parts[0] == ToolCallPart(ToolUse(id="1", name="look", unreadable=broken))


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


def test_events_after_the_end_are_ignored() -> None:
    assert parse_reply(START, TEXT_BLOCK, end_events(), TEXT_BLOCK) == parse_reply(START, TEXT_BLOCK, end_events())


@pytest.mark.parametrize(
    "broken", [b"data: {\n\n", b"data: \xff\n\n", b'data: {"type": 7}\n\n', b"data: " + b"[" * 50_000 + b"\n"]
)
def test_parts_before_an_unreadable_event_are_delivered(broken: bytes) -> None:
    reply = ReplyParser(AnthropicReplyFormat(), make_failure=make_failure, sent=0, place=1)
    stream = reply.feed(HELLO + broken + HELLO)

    assert next(stream) == Text("hello")
    with pytest.raises(OutsideFailed, match="cannot be read") as caught:
        next(stream)

    assert caught.value.retryable


def test_a_line_that_never_ends_fails_the_call() -> None:
    reply = ReplyParser(AnthropicReplyFormat(), make_failure=make_failure, sent=0, place=1)
    list(reply.feed(b"x" * LONGEST_LINE))

    with pytest.raises(OutsideFailed, match="sent a line of more than"):
        list(reply.feed(b"x"))


STREAM = b"".join(
    [
        event("message_start", message={"usage": {"input_tokens": 3, "output_tokens": 1}}),
        event("ping"),
        thinking_block(0, "nachdenken über 🎻", "sig=="),
        text_block(1, "naïve ", "🎻 text\n").replace(b"\n\n", b"\r\n\r\n"),
        tool_block(2, "1", "look", "", '{"at": "ü', '"}'),
        end_events("tool_use", output_tokens=2),
    ]
)
DOCUMENT = msgspec.json.encode(
    {"type": "message", "content": [{"type": "text", "text": "naïve 🎻"}], "stop_reason": "max_tokens"}
)


@given(cuts=st.lists(st.integers(min_value=0, max_value=len(STREAM))), body=st.sampled_from([STREAM, DOCUMENT]))
def test_a_reply_parses_the_same_however_it_is_split_into_packets(cuts: list[int], body: bytes) -> None:
    places = [0, *sorted(cuts), len(body)]
    packets = [body[start:end] for start, end in pairwise(places)]

    assert parse_reply(*packets) == parse_reply(body)


def test_a_reply_that_arrives_byte_by_byte_parses_the_same() -> None:
    assert parse_reply(*(STREAM[n : n + 1] for n in range(len(STREAM)))) == parse_reply(STREAM)
    assert parse_reply(STREAM)[:4] == [
        Reasoning("nachdenken über 🎻"),
        Text("naïve "),
        Text("🎻 text\n"),
        ToolCallPart(ToolUse(id="1", name="look", arguments={"at": "ü"})),
    ]
