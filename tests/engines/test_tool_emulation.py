"""Tools in the prompt, for models without a tool interface: the call, the conversation and the reply."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import validate

from podium import Agent, Result
from podium.cli.output.entry_lines import format_entry
from podium.core.engine import Tool, ToolAnswer
from podium.core.scope import Scope
from podium.engines.model.model_wire import Message, Model, ModelCall, add_zero_cost
from podium.engines.model.retry_policy import RetryPolicy
from podium.engines.model.tool_emulation import (
    AnswerStream,
    decode_answer,
    emulate_tools,
    inline_references,
    make_reply_schema,
    refuses_tools,
)
from podium.engines.model.tool_loop import ModelEngine
from podium.engines.script import ScriptedWire
from podium.store.fault_injection import refuse_after
from podium.values.agent import Member, Team
from podium.values.event import ModelAskedAgain, ModelReplied, Noticed, TextStreamed, ToolCalled, ToolUse, TurnEnded
from podium.values.model_abilities import ModelAbilities

from ..studio import Studio, skip_sleep

WRITTEN = '{"tool": "helper", "arguments": {"request": "help"}}'
LONG = '{"answer": "It is done. \\u00e4 \\"quoted\\" \\ud83d\\ude00\\nNext line."}'


def make_engine(scripts: Any, **given: Any) -> tuple[ModelEngine, ScriptedWire]:
    wire = ScriptedWire(scripts)
    model = Model(wire=wire, add_cost=add_zero_cost, **given)
    return ModelEngine(model, name="m", retry=RetryPolicy(sleep=skip_sleep)), wire


async def never(call: ToolUse, place: Scope) -> ToolAnswer:
    raise AssertionError("nothing calls this tool")


async def run_lead(
    studio: Studio, says: list[Any], *, fault: Any = None, keys: dict[str, Any] | None = None, **given: Any
) -> tuple[Result, ScriptedWire]:
    engine, wire = make_engine({"lead": says, "helper": ["helped"]}, **(given or {"tool_calls": "text"}))
    async with studio.app(engines={"mine": engine}, fault=fault) as app:
        lead = Agent(name="lead", engine="mine", prompt="You lead.", agents=("helper",), **keys or {})
        helper = Agent(name="helper", engine="mine", description="Helps.")
        return await app.run(lead, "go", agents=[helper]), wire


@pytest.mark.parametrize(
    ("abilities", "tool_calls", "is_emulated"),
    [
        (ModelAbilities(), "auto", False),
        (ModelAbilities(native_calls=True), "auto", False),
        (ModelAbilities(native_calls=False), "auto", True),
        (ModelAbilities(native_calls=False, json_schema=True, written_calls=True), "auto", True),
        (ModelAbilities(native_calls=False, json_schema=False, written_calls=True), "auto", False),
        (ModelAbilities(native_calls=False, json_schema=False, written_calls=False), "auto", True),
        (ModelAbilities(native_calls=True), "text", True),
        (ModelAbilities(native_calls=False), "native", False),
    ],
)
def test_tools_are_emulated_if_the_settings_or_a_test_of_the_model_say_so(
    abilities: ModelAbilities, tool_calls: Any, is_emulated: bool
) -> None:
    model = Model(wire=ScriptedWire(), abilities=abilities, tool_calls=tool_calls)

    assert model.emulates_tools == is_emulated


async def test_a_call_and_an_answer_in_text_work_like_any_other(studio: Studio) -> None:
    result, wire = await run_lead(studio, [WRITTEN, {"says": LONG, "pieces": 20}])

    assert result.text == json.loads(LONG)["answer"]
    (called,) = studio.events(result, ToolCalled)
    assert (called.action.tool, called.action.arguments, called.is_from_text) == ("helper", {"request": "help"}, True)
    first = wire.heard[0]
    assert first.tools == ()
    assert "helper: Helps." in first.system
    assert "request (string)" in first.system
    assert first.schema is not None
    validate(json.loads(WRITTEN), first.schema)
    validate(json.loads(LONG), first.schema)
    last = wire.heard[-1].messages
    assert [message.role for message in last] == ["user", "assistant", "user"]
    assert json.loads(last[1].text) == json.loads(WRITTEN)
    assert last[2].text == "[result of helper]\nhelped"


async def test_a_call_that_was_asked_for_as_text_is_shown_like_any_other(studio: Studio) -> None:
    asked, _ = await run_lead(studio, [WRITTEN, LONG])
    unasked, _ = await run_lead(studio, [WRITTEN, LONG], tool_calls="native")

    def show_calls(result: Result) -> str:
        entries = [entry for entry in studio.entries(result) if isinstance(entry.event, ToolCalled)]
        return "\n".join(format_entry(entry) or "" for entry in entries)

    assert "uses helper" in show_calls(asked)
    assert "wrote this call as text" not in show_calls(asked)
    assert "wrote this call as text" in show_calls(unasked)


def test_the_result_of_read_file_has_no_line_numbers() -> None:
    use = ToolUse(id="c", name="read_file", arguments={"path": "a"})
    table = "     1\tone\n     2\t3\tthree\n[a continues; to read more, use offset=3]"
    messages = (
        Message(role="user", text="go"),
        Message(role="assistant", text="", calls=(use,)),
        Message(role="tool", text=table, answers="c"),
    )
    tool = Tool(name="read_file", description="Read a text file as numbered lines.", parameters={}, answer=never)
    call = ModelCall(agent="a", model="m", system="", messages=messages, tools=(tool,), key="k")

    sent = emulate_tools(call, takes_schema=True)

    assert sent.messages[-1].text == ("[result of read_file]\none\n3\tthree\n[a continues; to read more, use offset=3]")
    assert "numbered" not in sent.system


REFUSED = {"fails": {"status": 400, "message": "qwen:0.5b does not support tools", "times": 1}}


async def test_a_model_that_refuses_tools_gets_them_in_the_prompt(studio: Studio) -> None:
    result, wire = await run_lead(studio, [REFUSED | {"says": WRITTEN}, '{"answer": "done"}'], name="qwen:0.5b")

    assert result.text == "done"
    lead_calls = [call for call in wire.heard if call.agent == "lead"]
    assert [bool(call.tools) for call in lead_calls] == [True, False, False]
    assert [event.text for event in studio.events(result, Noticed)] == [
        "qwen:0.5b does not support tool calls; the tools of lead are described in its prompt instead."
    ]


async def test_a_model_that_refuses_tools_fails_if_the_settings_ask_for_native_calls(studio: Studio) -> None:
    result, _ = await run_lead(studio, [REFUSED | {"says": WRITTEN}], name="qwen:0.5b", tool_calls="native")

    assert result.error is not None
    assert "does not support tools" in str(result.error)


@pytest.mark.parametrize(
    ("message", "is_refusal"),
    [
        ("ollama returned 400: registry/library/gemma:2b does not support tools", True),
        ("`tool calling` is not supported with this model", True),
        ("This model does not support function calling", True),
        ("No endpoints found that support tool use", True),
        ('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', True),
        ("messages: tool_use ids were found without tool_result blocks", False),
        ("Invalid schema for function 'look': None is not of type 'object'", False),
        ("response_format is not supported", False),
    ],
)
def test_an_error_that_refuses_tools_is_recognised(message: str, is_refusal: bool) -> None:
    assert refuses_tools(message) == is_refusal


async def test_people_see_the_answer_and_not_its_json(studio: Studio) -> None:
    result, _ = await run_lead(studio, [{"says": WRITTEN, "pieces": 4}, {"says": LONG, "pieces": 9}])

    streamed = "".join(event.text for event in studio.events(result, TextStreamed))
    assert "{" not in streamed
    assert studio.events(result, TurnEnded)[-1].text == json.loads(LONG)["answer"]


async def test_without_a_schema_plain_words_are_an_answer_and_the_call_may_be_in_a_fence(studio: Studio) -> None:
    without: dict[str, Any] = {"tool_calls": "text", "abilities": ModelAbilities(json_schema=False)}

    result, wire = await run_lead(studio, [f"```json\n{WRITTEN}\n```", "It is done."], **without)

    assert result.text == "It is done."
    assert len(studio.events(result, ToolCalled)) == 1
    assert wire.heard[0].schema is None


async def test_an_answer_that_was_cut_off_is_continued(studio: Studio) -> None:
    moves = [{"says": '{"answer": "The first half,', "stop": "length"}, '{"answer": " and the second."}']

    result, _ = await run_lead(studio, moves)

    assert result.text == "The first half, and the second."
    assert len(studio.events(result, ModelAskedAgain)) == 1


async def test_an_output_schema_is_the_schema_of_the_answer(studio: Studio) -> None:
    schema = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}

    result, wire = await run_lead(studio, [WRITTEN, '{"answer": {"score": 3}}'], keys={"output": schema})

    assert result.data == {"score": 3}
    assert wire.heard[0].schema is not None
    validate({"answer": {"score": 3}}, wire.heard[0].schema)


async def test_a_resumed_run_reads_the_same(studio: Studio) -> None:
    moves = [WRITTEN, {"says": LONG, "pieces": 3}]
    deaths = 0
    for number in range(2, 60):
        first, _ = await run_lead(studio, moves, fault=refuse_after(number))
        if first.succeeded:
            break
        studio.expire_leases()
        engine, _ = make_engine({"lead": moves, "helper": ["helped"]}, tool_calls="text")
        async with studio.app(engines={"mine": engine}) as app, app.resume(first.run_id) as resumed:
            result = await resumed.result()
        assert result.text == json.loads(LONG)["answer"], number
        assert len(studio.events(result, ToolCalled)) == 1, number
        assert [event.text for event in studio.events(result, ModelReplied)][-1] == result.text
        deaths += 1
    assert deaths > 10


def test_an_answer_is_decoded_piece_by_piece() -> None:
    for size in (1, 2, 3, 7):
        stream = AnswerStream()
        parts = [stream.add_text(LONG[place : place + size]) for place in range(0, len(LONG), size)]
        assert "".join(parts) == stream.decoded == json.loads(LONG)["answer"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"answer": "yes"}', "yes"),
        ('{"answer": "ye', "ye"),
        ('{"answer": "a\\', "a"),
        ('{"answer": 3}', "3"),
        ('```json\n{"answer": "yes"}\n```', "yes"),
        ('{"Answer": "yes"}', "yes"),
        ('{"answer": "{\\"answer\\": \\"yes\\"}"}', "yes"),
        ('{"answer": "{\\"answer\\": 1, \\"why\\": 2}"}', '{"answer": 1, "why": 2}'),
        ('{"answer": null}', ""),
        ('{"tool": "x", "arguments": {}}', None),
        ('{"tool": "x", "arg', None),
        ("in words", None),
        ("[1]", None),
    ],
)
def test_the_answer_in_a_reply(text: str, answer: str | None) -> None:
    assert decode_answer(text) == answer


async def _never(*_: Any) -> Any:
    raise AssertionError


def test_references_in_the_schemas_of_tools_still_resolve() -> None:
    parameters = {
        "type": "object",
        "properties": {"edits": {"type": "array", "items": {"$ref": "#/$defs/Edit"}}},
        "$defs": {
            "Edit": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Edit"}, "old": {"type": "string"}}}
        },
    }
    tool = Tool(name="edit", description="", parameters=parameters, answer=_never)

    schema = make_reply_schema((tool,), None)

    assert "$ref" not in json.dumps(schema)
    validate({"tool": "edit", "arguments": {"edits": [{"old": "a", "next": {}}]}}, schema)
    assert inline_references({"type": "string"}) == {"type": "string"}


async def test_a_call_without_tools_shows_earlier_replies_as_they_were(studio: Studio) -> None:
    plan = '[{"worker": "helper", "task": "help"}]'
    engine, wire = make_engine({"lead": [plan, '{"answer": "the synthesis"}'], "helper": ["helped"]}, tool_calls="text")
    async with studio.app(engines={"mine": engine}) as app:
        team = Team(mode="orchestrate", members=(Member(agent="helper"),))
        lead = Agent(name="lead", engine="mine", prompt="You lead.", team=team)
        result = await app.run(lead, "go", agents=[Agent(name="helper", engine="mine", description="Helps.")])

    assert result.text == "the synthesis"
    last = [call for call in wire.heard if "Results" in call.messages[-1].text][-1]
    assert [message.text for message in last.messages if message.role == "assistant"] == [plan]


async def test_an_answer_in_the_form_of_emulated_tools_is_read_without_tools_too(studio: Studio) -> None:
    engine, _ = make_engine({"lead": ['{"answer": "done"}']}, tool_calls="text")
    async with studio.app(engines={"mine": engine}) as app:
        lead = Agent(name="lead", engine="mine", tools=())
        result = await app.run(lead, "go")

    assert result.text == "done"
