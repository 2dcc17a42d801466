"""The test of a model against real servers on loopback that behave like the servers people have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from aiohttp import ClientSession

from podium.engines.engine_choice import ModelAddress
from podium.engines.model.model_wire import ModelCall
from podium.engines.model.providers import PROVIDERS
from podium.engines.model_prober import ModelProber, ProbeLimits
from podium.engines.model_probes import CODE_WORD, PROBES, TOOL_NAME, ProbeResult
from podium.engines.script import Fails, Move, ToolCall
from podium.testing import ModelServer
from podium.values.errors import OutsideFailed
from podium.values.model_abilities import UNTESTED, ModelAbilities

WRITTEN = f'{{"name": "{TOOL_NAME}", "arguments": {{"city": "Oslo", "degrees": 7}}}}'

Behaviour = Callable[[ModelCall], Move]


def reply_with_everything(call: ModelCall) -> Move:
    """Reply like a good model on a good server."""
    if call.tools:
        return Move(calls=(ToolCall(name=TOOL_NAME, arguments={"city": "Oslo", "degrees": 7}),))
    if call.schema is not None:
        return Move(says='{"colour": "blue", "percent": 90}')
    if CODE_WORD in call.system:
        return Move(says=f"It is {CODE_WORD}.")
    if TOOL_NAME in call.system:
        return Move(says=WRITTEN)
    return Move(says="1 2 3 4 5 6 7 8", pieces=4, pace=0.02)


def write_calls_as_text(call: ModelCall) -> Move:
    return Move(says=WRITTEN) if call.tools else reply_with_everything(call)


def reject_tools(call: ModelCall) -> Move:
    fails = Fails(status=400, message="this model does not support tools")
    return Move(fails=fails) if call.tools else reply_with_everything(call)


def ignore_schema(call: ModelCall) -> Move:
    return Move(says="The sky is blue.") if call.schema else reply_with_everything(call)


def reject_schema(call: ModelCall) -> Move:
    fails = Fails(status=400, message="response_format is not supported")
    return Move(fails=fails) if call.schema else reply_with_everything(call)


def reply_with_nothing(call: ModelCall) -> Move:
    return Move(says="")


def stay_silent(call: ModelCall) -> Move:
    return Move(silent=True)


async def probe_server(
    server: ModelServer, *, provider: str = "vllm", key: str = "", seconds: float = 30.0
) -> tuple[ModelAbilities, dict[str, ProbeResult]]:
    results: list[ProbeResult] = []
    url = server.url if provider != "anthropic" else server.url.removesuffix("/v1")
    address = ModelAddress(provider=PROVIDERS[provider], url=url, model="scripted")
    async with ClientSession() as client:
        prober = ModelProber(client, address, key, limits=ProbeLimits(seconds), report=results.append)
        abilities = await prober.probe()
    assert [result.probe for result in results] == list(PROBES)  # one line for each probe, whatever happens
    return abilities, {result.probe: result for result in results}


FULL: dict[str, Any] = {
    "streaming": True,
    "system_prompt": True,
    "native_calls": True,
    "written_calls": True,
    "json_schema": True,
    "window": 4096,
}


@pytest.mark.parametrize(
    ("behaviour", "different", "words"),
    [
        (reply_with_everything, {}, {"context window": "4,096 tokens, according to the server's /models"}),
        (write_calls_as_text, {"native_calls": False}, {"native tool calls": "writes the call as text"}),
        (reject_tools, {"native_calls": False}, {"native tool calls": "rejects tools: vllm returned 400"}),
        (ignore_schema, {"json_schema": False}, {"JSON schema": "the server ignores response_format"}),
        (reject_schema, {"json_schema": False}, {"JSON schema": "rejects response_format: vllm returned 400"}),
    ],
)
async def test_what_a_server_can_do(behaviour: Behaviour, different: dict[str, Any], words: dict[str, str]) -> None:
    async with ModelServer(otherwise=behaviour, window=4096) as server:
        abilities, results = await probe_server(server)

    assert {key: getattr(abilities, key) for key in FULL} == {**FULL, **different}
    assert abilities.tokens_per_second is not None
    assert abilities.tokens_per_second > 0
    assert [text in results[probe].text for probe, text in words.items()] == [True]


async def test_an_empty_server_says_nothing_about_itself_but_every_probe_has_a_line() -> None:
    async with ModelServer(otherwise=reply_with_nothing) as server:
        abilities, results = await probe_server(server)

    assert {result.text for probe, result in results.items() if probe != "context window"} == {"the reply was empty"}
    assert abilities == UNTESTED


async def test_a_silent_server_is_not_called_again_and_again() -> None:
    async with ModelServer(otherwise=stay_silent) as server:
        abilities, results = await probe_server(server, seconds=0.4)

    assert abilities == UNTESTED
    assert len(server.calls) == 1
    assert results["streaming"].text == "no complete reply within 0.2 s"
    assert results["JSON schema"].text == "not tested: the server does not reply"


async def test_a_slow_server_is_tested_as_far_as_the_time_allows() -> None:
    async with ModelServer(otherwise=reply_with_everything, latency=0.35) as server:
        began = anyio.current_time()
        abilities, results = await probe_server(server, seconds=2.0)
        took = anyio.current_time() - began

    assert took < 10
    assert (abilities.streaming, abilities.system_prompt) == (True, True)
    assert results["concurrency"].text == "not tested: the test reached its time limit"


async def test_a_server_that_answers_calls_at_once_is_recognised() -> None:
    async with ModelServer(otherwise=reply_with_everything, latency=0.15) as server:
        abilities, _ = await probe_server(server)

    assert (abilities.concurrent or 0) >= 2


async def test_a_server_that_refuses_every_call_ends_the_test_with_its_own_words() -> None:
    async with ModelServer(otherwise=reply_with_everything, api_key="right") as server:
        with pytest.raises(OutsideFailed, match="openai returned 403 for the key in OPENAI_API_KEY"):
            await probe_server(server, provider="openai", key="sk-wrong-111111")


async def test_the_other_api_is_tested_too_without_a_schema() -> None:
    async with ModelServer(otherwise=reply_with_everything) as server:
        abilities, results = await probe_server(server, provider="anthropic", key="sk-any-222222")

    assert (abilities.streaming, abilities.native_calls, abilities.json_schema) == (True, True, None)
    assert results["JSON schema"].text == "not tested: with this API, Podium passes the schema as a tool"
    assert len(server.calls) == 8  # a paid test makes few calls


async def test_cancelling_a_test_ends_its_call_at_once() -> None:
    async with ModelServer(otherwise=stay_silent) as server:
        async with anyio.create_task_group() as group:
            group.start_soon(probe_server, server)
            await server.wait_calls(1)
            group.cancel_scope.cancel()
        with anyio.fail_after(40):
            await server.wait_idle()
