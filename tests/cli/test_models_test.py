"""`podium models test`: what a model can do is shown, remembered and used."""

from __future__ import annotations

import json
import signal
from functools import partial
from typing import Any

import pytest
from anyio import to_thread
from click.testing import Result as Invoked

from podium.engines.model.model_wire import ModelCall
from podium.engines.script import Fails, Move
from podium.files.tested_models import load_ability_records
from podium.testing import ModelServer

from ..engines.test_model_prober import (
    Behaviour,
    ignore_schema,
    reject_tools,
    reply_with_everything,
    reply_with_nothing,
    stay_silent,
    write_calls_as_text,
)
from .conftest import Desk, read_until_exit
from .test_models import NO_SERVERS

OUTPUT_SCHEMA = {"type": "object", "properties": {"score": {"type": "number"}}, "required": ["score"]}


async def invoke(desk: Desk, *arguments: str, **variables: str) -> Invoked:
    """Call podium in this process, in another thread than the server's."""
    return await to_thread.run_sync(partial(desk.invoke, *arguments, **{**NO_SERVERS, **variables}))


@pytest.mark.parametrize(
    ("behaviour", "seconds", "code", "line"),
    [
        (reply_with_everything, "30", 0, "native tool calls   yes      the model calls tools through the API"),
        (write_calls_as_text, "30", 0, "native tool calls   no       the model writes the call as text instead"),
        (reject_tools, "30", 0, "native tool calls   no       the server rejects tools: vllm returned 400"),
        (ignore_schema, "30", 0, "JSON schema         no       the server ignores response_format"),
        (stay_silent, "1", 1, "streaming           unknown  no complete reply within 0.5 s"),
        (reply_with_nothing, "30", 1, "streaming           unknown  the reply was empty"),
    ],
)
async def test_there_is_one_clear_line_for_each_probe(
    desk: Desk, behaviour: Behaviour, seconds: str, code: int, line: str
) -> None:
    async with ModelServer(otherwise=behaviour, window=4096) as server:
        said = await invoke(desk, "models", "test", "vllm:scripted", "--seconds", seconds, VLLM_BASE_URL=server.url)

    assert said.exit_code == code, said.stderr
    assert line in said.stdout
    assert said.stdout.startswith(f"vllm:scripted at {server.url}\n")
    assert len(said.stdout.splitlines()) == 9
    assert len(load_ability_records(desk.home)) == (1 if code == 0 else 0)


async def test_a_result_is_remembered_shown_and_used(desk: Desk) -> None:
    async with ModelServer(otherwise=reply_by_test, window=4096, latency=0.05) as server:
        found = await invoke(desk, "models", "test", server.url, "--json")
        await invoke(desk, "models", "use", server.url)
        here = {"VLLM_BASE_URL": ""}
        listed = await invoke(desk, "models", "list", **here)
        checked = await invoke(desk, "doctor", "--json", **here)
        desk.write_agent("judge", engine="model", output=OUTPUT_SCHEMA)
        run = partial(desk.run_podium, "run", "judge", "go", "--quiet", **NO_SERVERS | here)
        await to_thread.run_sync(run)

    tested = json.loads(found.stdout)
    assert tested["abilities"]["json_schema"] is False
    assert (tested["provider"], tested["model"], tested["abilities"]["window"]) == ("vllm", "scripted", 4096)
    assert "no JSON schema; 4,096 tokens of context" in listed.stdout
    facts: list[dict[str, Any]] = json.loads(checked.stdout)["facts"]
    assert "vllm:scripted, " in next(fact["text"] for fact in facts if fact["what"] == "model test")
    last = server.calls[-1].call
    assert (last.messages[0].text.splitlines()[0], last.schema) == ("go", None)  # the server would reject a schema


def reply_by_test(call: ModelCall) -> Move:
    if call.schema is not None:
        return Move(fails=Fails(status=400, message="no response_format here"))
    return reply_with_everything(call)


async def test_a_test_that_costs_money_says_how_much_and_needs_consent(desk: Desk) -> None:
    async with ModelServer(otherwise=reply_with_everything) as server:
        variables = {"OPENAI_API_KEY": "sk-any-333333", "OPENAI_BASE_URL": server.url}
        asked = await invoke(desk, "models", "test", "openai:gpt-5-mini", **variables)
        agreed = await invoke(desk, "models", "test", "openai:gpt-5-mini", "--yes", **variables)

    assert asked.exit_code == 2
    assert "Testing openai:gpt-5-mini costs at most $0.0" in asked.stderr
    assert agreed.exit_code == 0, agreed.stderr
    assert "tokens, according to the price list" in agreed.stdout


async def test_a_test_can_be_cancelled_and_then_nothing_is_remembered(desk: Desk) -> None:
    async with ModelServer(otherwise=stay_silent) as server:
        variables = {**NO_SERVERS, "VLLM_BASE_URL": server.url}
        with desk.start_podium("models", "test", "vllm:scripted", **variables) as process:
            await server.wait_calls(1)
            process.send_signal(signal.SIGINT)
            _, errors = await to_thread.run_sync(read_until_exit, process)

    assert process.returncode == 130
    assert "interrupted" in errors
    assert load_ability_records(desk.home) == ()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "no model is configured; name one to test"),
        (("openai:gpt-5-mini",), 2, "the test uses openai:gpt-5-mini, but OPENAI_API_KEY is not set"),
        (("nobody:x",), 2, "model provider 'nobody' not found"),
        (("http://127.0.0.1:1/v1",), 2, "no model server responds at http://127.0.0.1:1/v1"),
        (("vllm:x",), 1, "vLLM is not running at http://127.0.0.1:1"),
        (("vllm:x", "--model", "y"), 2, "--model needs the URL of a server"),
        (("vllm:x", "--seconds", "0"), 2, "0.0 is not in the range x>=1"),
    ],
)
def test_what_cannot_be_tested_is_one_sentence(desk: Desk, arguments: tuple[str, ...], code: int, message: str) -> None:
    said = desk.invoke("models", "test", *arguments, **NO_SERVERS)

    assert said.exit_code == code
    assert message in said.stderr
    assert said.stderr.count("\n") == 1


async def test_a_local_model_needs_no_test(desk: Desk) -> None:
    refused = await invoke(desk, "models", "test", "local:small")

    assert refused.exit_code == 2
    assert "local:small needs no test, because Podium runs local models itself" in refused.stderr
