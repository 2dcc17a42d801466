"""Tool calls that a model writes into its text: what counts as one, and what becomes of the turn."""

from __future__ import annotations

from typing import Any

import pytest

from podium import Agent, Result
from podium.engines.model.model_caller import Model, RetryPolicy, add_zero_cost
from podium.engines.model.tool_loop import ModelEngine
from podium.engines.model.written_call import find_written_call
from podium.engines.script import ScriptedWire
from podium.values.event import ModelReplied

from ..studio import Studio, skip_sleep

CALL = '{"name": "write_file", "arguments": {"path": "a.txt", "content": "x"}}'


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"\n{CALL}\n{CALL}\n",
        f"[{CALL}]",
        f"```json\n{CALL}\n```",
        f"```\n{CALL}\n```",
        f"<tool_call>\n{CALL}\n</tool_call>",
        f"<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>",
        f"<tool_call>{CALL}",
        f"<think>I write it.</think>\n{CALL}",
        f"[TOOL_CALLS][{CALL}]",
        '[TOOL_CALLS]write_file[ARGS]{"path": "a.txt"}',
        f"<|python_tag|>{CALL}",
        "<tool_call>\n<function=write_file>\n<parameter=path>\na.txt\n</parameter>\n</function>\n</tool_call>",
        '{"name": "write_file", "parameters": {"path": "a.txt"}}',
        '{"type": "function", "function": {"name": "write_file", "arguments": "{}"}}',
        '{"tool_calls": [{"id": "1", "function": {"name": "write_file", "arguments": {}}}]}',
        '{"name": "functions.write_file", "arguments": {"path": "a\nb"}}',
    ],
)
def test_a_reply_that_is_nothing_but_a_call_is_found_in_every_format(text: str) -> None:
    assert find_written_call(text, {"write_file", "read_file"}) == "write_file"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I wrote the file.",
        f"This is what a call looks like: {CALL}",
        f"{CALL}\n\nThat is what a call looks like.",
        f"```json\n{CALL}\n```\nand more",
        '{"name": "delete_file", "arguments": {}}',
        '{"name": "write_file", "description": "a person"}',
        '[{"name": "write_file", "arguments": {}}, {"score": 1}]',
        '{"score": 0.5}',
        "[1, 2]",
        '"write_file"',
        "<tool_call>delete_file</tool_call>",
        "[" * 5_000,
    ],
)
def test_answers_that_contain_json_stay_answers(text: str) -> None:
    assert find_written_call(text, {"write_file"}) is None


async def run_lead(studio: Studio, says: list[Any], **keys: Any) -> tuple[Result, ScriptedWire]:
    wire = ScriptedWire(says)
    engine = ModelEngine(Model(wire=wire, add_cost=add_zero_cost), name="m", retry=RetryPolicy(sleep=skip_sleep))
    helper = Agent(name="helper", engine="mine")
    async with studio.app(engines={"mine": engine}) as app:
        result = await app.run(Agent(name="lead", engine="mine", agents=("helper",), **keys), "go", agents=[helper])
    return result, wire


WRITTEN = '{"name": "helper", "arguments": {"request": "help"}}'


async def test_a_model_that_writes_a_call_is_asked_once_to_use_the_tool_interface(studio: Studio) -> None:
    result, wire = await run_lead(studio, [WRITTEN, "in words"])

    assert result.text == "in words"
    assert "tool interface" in wire.heard[1].messages[-1].text


async def test_a_model_that_writes_its_calls_twice_has_failed(studio: Studio) -> None:
    result, _ = await run_lead(studio, [WRITTEN, f"<tool_call>{WRITTEN}</tool_call>", "never"])

    assert result.outcome == "failed"
    assert result.text == ""
    assert result.error == (
        "lead: its model wrote a call to helper as text instead of calling it, even when asked again; "
        "use a model and a server that support tool calls"
    )
    assert len(studio.events(result, ModelReplied)) == 2


async def test_without_another_turn_the_first_written_call_is_a_failure(studio: Studio) -> None:
    result, _ = await run_lead(studio, [WRITTEN, "never"], max_turns=1)

    assert result.outcome == "failed"
    assert "wrote a call to helper as text instead of calling it; use a model" in (result.error or "")


async def test_an_agent_whose_schema_asks_for_such_json_may_answer_with_it(studio: Studio) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

    result, _ = await run_lead(studio, [WRITTEN], output=schema)

    assert result.succeeded
    assert result.data["name"] == "helper"


async def test_a_later_turn_hears_that_the_model_was_asked_again(studio: Studio) -> None:
    wire = ScriptedWire([WRITTEN, "first answer", "second answer"])
    engine = ModelEngine(Model(wire=wire, add_cost=add_zero_cost), name="m", retry=RetryPolicy(sleep=skip_sleep))
    agents: dict[str, Any] = {"agents": [Agent(name="helper", engine="mine")]}
    async with studio.app(engines={"mine": engine}) as app:
        lead = Agent(name="lead", engine="mine", agents=("helper",))
        first = await app.run(lead, "go", **agents)
        async with app.start(lead, "and?", after=first.run_id, **agents) as run:
            result = await run.result()

    assert result.text == "second answer"
    roles = [message.role for message in wire.heard[2].messages]
    assert roles == ["user", "assistant", "user", "assistant", "user"]
    assert wire.heard[2].messages[2] == wire.heard[1].messages[2]
