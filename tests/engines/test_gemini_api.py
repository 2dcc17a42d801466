"""The Gemini API of the model server, and gemini as a coding agent that uses a model of its provider."""

from __future__ import annotations

from typing import Any

import aiohttp
import msgspec
import pytest

from podium.engines.acp.agent_program import AGENT_PROGRAMS
from podium.testing import ModelServer
from podium.values.errors import Mistake

QUESTION: dict[str, Any] = {"role": "user", "parts": [{"text": "Look."}]}


async def ask(server: ModelServer, method: str, *contents: dict[str, Any], key: str = "k") -> tuple[int, str]:
    url = f"{server.url.removesuffix('/v1')}/v1beta/models/x:{method}"
    body = {
        "contents": contents,
        "systemInstruction": {"parts": [{"text": "Be kind."}]},
        "tools": [{"functionDeclarations": [{"name": "look", "parametersJsonSchema": {"type": "object"}}]}],
    }
    async with (
        aiohttp.ClientSession(headers={"x-goog-api-key": key}) as client,
        client.post(url, json=body) as response,
    ):
        return response.status, await response.text()


async def test_a_conversation_with_calls_and_their_results_goes_on() -> None:
    script: list[Any] = [{"says": "I look.", "calls": [{"name": "look", "arguments": {"at": 1}}]}, "It is blue."]
    async with ModelServer(script, api_key="k") as server:
        _, first = await ask(server, "generateContent", QUESTION)
        reply = msgspec.json.decode(first)["candidates"][0]["content"]
        id = reply["parts"][1]["functionCall"]["id"]
        result = {"functionResponse": {"id": id, "name": "look", "response": {"output": "blue"}}}
        status, second = await ask(
            server, "streamGenerateContent", QUESTION, reply, {"role": "user", "parts": [result]}
        )
        refused, _ = await ask(server, "generateContent", QUESTION, key="x")

    pieces = [msgspec.json.decode(line.removeprefix("data: ")) for line in second.split("\r\n\r\n") if line]
    last = server.calls[1].call
    assert (status, refused) == (200, 403)
    assert reply["parts"][0] == {"text": "I look."}
    assert pieces[0]["candidates"][0]["content"]["parts"] == [{"text": "It is blue."}]
    assert pieces[-1]["candidates"][0]["finishReason"] == "STOP"
    assert pieces[-1]["usageMetadata"]["totalTokenCount"] > 0
    assert (last.system, [tool.name for tool in last.tools]) == ("Be kind.", ["look"])
    assert [message.role for message in last.messages] == ["user", "assistant", "tool"]
    assert last.messages[2].text == '{"output":"blue"}'


def test_an_agent_uses_the_own_api_of_a_provider_if_it_knows_only_that() -> None:
    gemini, qwen = AGENT_PROGRAMS["gemini"], AGENT_PROGRAMS["qwen"]

    assert gemini.choose_wire("gemini", "openai", agent="a", model="gemini:x") == "gemini"
    assert qwen.choose_wire("gemini", "openai", agent="a", model="gemini:x") == "openai"
    with pytest.raises(Mistake, match="a uses gemini with the model openai:x, but gemini can use only models with the"):
        gemini.choose_wire("openai", "openai", agent="a", model="openai:x")
