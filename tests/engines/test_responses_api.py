"""The Responses API of the model server, called by OpenAI's own client."""

from __future__ import annotations

from typing import Any

import pytest
from openai import APIStatusError, AsyncOpenAI

from podium.testing import ModelServer

TOOL: Any = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}
PATCH: Any = {"type": "custom", "name": "patch"}
LOOK = {"name": "look", "arguments": {"at": 1}}


async def test_a_conversation_with_calls_and_their_results_goes_on() -> None:
    script: list[Any] = [
        {"says": "I look.", "calls": [LOOK, {"name": "patch", "arguments": {"input": "+x"}}]},
        "It is blue.",
    ]
    async with ModelServer(script, api_key="k") as server, AsyncOpenAI(base_url=server.url, api_key="k") as client:
        first = await client.responses.create(model="m", instructions="Be kind.", input="Look.", tools=[TOOL, PATCH])
        calls: list[Any] = [item for item in first.output if item.type != "message"]
        outputs = [{"type": f"{call.type}_output", "call_id": call.call_id, "output": "blue"} for call in calls]
        given: Any = [{"role": "user", "content": "Look."}, *first.output, *outputs]
        second = await client.responses.create(model="m", input=given, tools=[TOOL, PATCH])

    assert (first.output_text, first.status) == ("I look.", "completed")
    assert [call.type for call in calls] == ["function_call", "custom_tool_call"]
    assert second.output_text == "It is blue."
    assert first.usage is not None
    assert first.usage.total_tokens == first.usage.input_tokens + first.usage.output_tokens
    assert server.calls[0].call.system == "Be kind."
    assert [message.role for message in server.calls[1].call.messages] == ["user", "assistant", "tool", "tool"]
    assert [call.arguments for call in server.calls[1].call.messages[1].calls] == [{"at": 1}, {"input": "+x"}]


async def test_a_tool_in_a_namespace_is_called_by_both_names() -> None:
    space: Any = {"type": "namespace", "name": "eyes", "description": "To see.", "tools": [TOOL]}
    script: list[Any] = [{"calls": [{"name": "eyes__look", "arguments": {"at": 1}}]}, "It is blue."]
    async with ModelServer(script) as server, AsyncOpenAI(base_url=server.url, api_key="k") as client:
        first = await client.responses.create(model="m", input="Look.", tools=[space])
        call: Any = first.output[0]
        answer = {"type": "function_call_output", "call_id": call.call_id, "output": "blue"}
        given: Any = [{"role": "user", "content": "Look."}, call, answer]
        second = await client.responses.create(model="m", input=given, tools=[space])

    assert (call.type, call.namespace, call.name) == ("function_call", "eyes", "look")
    assert second.output_text == "It is blue."
    assert [tool.name for tool in server.calls[0].call.tools] == ["eyes__look"]
    assert [use.name for use in server.calls[1].call.messages[1].calls] == ["eyes__look"]


async def test_a_reply_is_streamed_in_pieces() -> None:
    script = [{"says": "one two", "pieces": 2, "calls": [LOOK]}]
    async with ModelServer(script) as server, AsyncOpenAI(base_url=server.url, api_key="k") as client:
        stream: Any = await client.responses.create(model="m", input="Count.", tools=[TOOL], stream=True)
        events: list[Any] = [event async for event in stream]

    pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
    done = [event.item.type for event in events if event.type == "response.output_item.done"]
    assert "".join(pieces) == "one two"
    assert len(pieces) == 2
    assert done == ["message", "function_call"]
    assert events[-1].type == "response.completed"


async def test_a_wrong_key_and_a_scripted_failure_are_errors() -> None:
    failing = [{"fails": {"status": 429, "message": "slow down"}}]
    async with ModelServer(failing, api_key="k") as server:
        for key, status in (("k", 429), ("x", 403)):
            async with AsyncOpenAI(base_url=server.url, api_key=key, max_retries=0) as client:
                with pytest.raises(APIStatusError) as caught:
                    await client.responses.create(model="m", input="Hi")
                assert caught.value.status_code == status
