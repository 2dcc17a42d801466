"""Calls with a JSON schema, to servers that accept one and to servers that do not."""

from __future__ import annotations

from typing import Any

import aiohttp
import msgspec
import pytest
from msgspec import structs

from podium.core.engine import Text
from podium.engines.model.anthropic_wire import AnthropicWire
from podium.engines.model.model_wire import ModelCall, ReplyEnd, ToolCallPart
from podium.engines.model.openai_wire import OpenAIWire
from podium.engines.model.tool_emulation import RefusedSchemas
from podium.values.errors import OutsideFailed
from podium.values.event import ToolUse

from .outside import LOOK, STREAM_HEAD, chunk_body, collect_parts, http_response, make_call, merge_texts, serve_replies

SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
REPLY = STREAM_HEAD + chunk_body(
    b'data: {"choices":[{"index":0,"delta":{"content":"{\\"at\\": \\"x\\"}"},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)


def make_schema_call(**more: Any) -> ModelCall:
    return structs.replace(make_call(), schema=SCHEMA, **more)


def refuse(message: str = "response_format is not supported", status: str = "400 Bad Request") -> bytes:
    return http_response(msgspec.json.encode({"error": {"message": message}}), status)


async def test_a_server_that_refuses_a_schema_gets_the_call_without_it_and_is_remembered() -> None:
    refused: RefusedSchemas = set()
    async with serve_replies([refuse(), REPLY, REPLY]) as server, aiohttp.ClientSession() as client:
        first, second = (OpenAIWire(lambda: client, server.url, refused_schemas=refused) for _ in range(2))
        parts = await collect_parts(first, make_schema_call(tools=(LOOK,), schema_tool="look"))
        await collect_parts(second, make_schema_call(tools=(LOOK,), schema_tool="look"))

    assert merge_texts(parts)[0] == Text('{"at": "x"}')
    assert ["response_format" in body for body in server.bodies] == [True, False, False]
    assert ["tools" in body for body in server.bodies] == [False, True, True]


async def test_a_refusal_with_other_tools_does_not_end_schemas_without_tools() -> None:
    refused: RefusedSchemas = set()
    async with serve_replies([refuse(), REPLY, REPLY]) as server, aiohttp.ClientSession() as client:
        wire = OpenAIWire(lambda: client, server.url, refused_schemas=refused)
        await collect_parts(wire, make_schema_call(tools=(LOOK,)))
        await collect_parts(wire, make_schema_call())

    assert ["response_format" in body for body in server.bodies] == [True, False, True]


async def test_a_call_that_fails_in_both_ways_fails_with_the_second_reason_and_is_not_remembered() -> None:
    refused: RefusedSchemas = set()
    replies = [refuse("messages[0] is empty"), refuse("messages[0] is empty")]
    async with serve_replies(replies) as server, aiohttp.ClientSession() as client:
        with pytest.raises(OutsideFailed, match="messages\\[0\\] is empty"):
            await collect_parts(OpenAIWire(lambda: client, server.url, refused_schemas=refused), make_schema_call())

    assert refused == set()


@pytest.mark.parametrize(
    "reply",
    [
        refuse("the maximum context length is 4096 tokens"),
        refuse("overloaded", "503 Service Unavailable"),
        refuse("no key", "401 Unauthorized"),
    ],
)
async def test_a_failure_for_another_reason_is_not_taken_for_a_refused_schema(reply: bytes) -> None:
    async with serve_replies([reply]) as server, aiohttp.ClientSession() as client:
        with pytest.raises(OutsideFailed):
            await collect_parts(OpenAIWire(lambda: client, server.url, refused_schemas=set()), make_schema_call())

    assert len(server.bodies) == 1


async def test_the_description_of_a_tool_that_the_schema_replaces_is_sent() -> None:
    async with serve_replies([REPLY]) as server, aiohttp.ClientSession() as client:
        call = make_schema_call(tools=(LOOK,), schema_tool="look", system="You route.")
        await collect_parts(OpenAIWire(lambda: client, server.url), call)

    [body] = server.bodies
    assert "tools" not in body
    assert body["messages"][0] == {"role": "system", "content": f"You route.\n\n{LOOK.description}"}


async def test_a_server_error_that_names_the_schema_is_a_refusal() -> None:
    replies = [refuse("failed to parse grammar", "500 Internal Server Error"), REPLY]
    async with serve_replies(replies) as server, aiohttp.ClientSession() as client:
        await collect_parts(OpenAIWire(lambda: client, server.url, refused_schemas=set()), make_schema_call())

    assert ["response_format" in body for body in server.bodies] == [True, False]


# Anthropic's API has no response format: the model must call a tool


def event(**fields: Any) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(fields)


def forced_reply(tool: str) -> bytes:
    return STREAM_HEAD + chunk_body(
        event(type="message_start", message={"usage": {"input_tokens": 3}})
        + event(type="content_block_start", index=0, content_block={"type": "tool_use", "id": "t1", "name": tool})
        + event(type="content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": '{"at": '})
        + event(type="content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": '"x"}'})
        + event(type="message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 2})
        + event(type="message_stop")
    )


async def test_a_forced_call_on_the_anthropic_api_is_read_as_the_text_of_the_reply() -> None:
    async with serve_replies([forced_reply("reply")]) as server, aiohttp.ClientSession() as client:
        parts = await collect_parts(AnthropicWire(lambda: client, server.url), make_schema_call())

    end = parts[-1]
    assert merge_texts(parts)[0] == Text('{"at": "x"}')
    assert isinstance(end, ReplyEnd)
    assert (end.stop, end.sealed) == ("stop", "")
    [body] = server.bodies
    assert [tool["input_schema"] for tool in body["tools"]] == [SCHEMA]
    assert body["tool_choice"] == {"type": "tool", "name": "reply", "disable_parallel_tool_use": True}


async def test_the_tool_that_does_the_same_as_a_reply_is_forced_and_stays_a_call() -> None:
    async with serve_replies([forced_reply("look")]) as server, aiohttp.ClientSession() as client:
        call = make_schema_call(tools=(LOOK,), schema_tool="look")
        parts = await collect_parts(AnthropicWire(lambda: client, server.url), call)

    assert parts[0] == ToolCallPart(ToolUse(id="t1", name="look", arguments={"at": "x"}))
    assert server.bodies[0]["tool_choice"]["name"] == "look"


async def test_no_tool_is_forced_on_a_model_that_has_others_to_call() -> None:
    async with serve_replies([forced_reply("look")]) as server, aiohttp.ClientSession() as client:
        await collect_parts(AnthropicWire(lambda: client, server.url), make_schema_call(tools=(LOOK,)))

    assert "tool_choice" not in server.bodies[0]
