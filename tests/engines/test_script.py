from __future__ import annotations

import subprocess
import sys
from typing import Any

import anyio
import pytest

from podium.core.engine import Reasoning, Text
from podium.engines.model.model_wire import Message, ModelCall, ReplyEnd, ReplyPart, ToolCallPart
from podium.engines.script import Fails, Move, ScriptedWire, ToolCall, find_script, parse_script
from podium.values.errors import Mistake, OutsideFailed
from podium.values.event import ToolUse
from podium.values.usage import Usage

USER_MESSAGE = Message(role="user", text="hi")


def make_call(agent: str = "a", *, turns: int = 0, system: str = "", asked: str = "hi", key: str = "k") -> ModelCall:
    """Return a call after this many replies."""
    past = [Message(role="user", text=asked)]
    for n in range(turns):
        past += [Message(role="assistant", text=f"reply {n}"), Message(role="user", text="go on")]
    return ModelCall(agent=agent, model="m", system=system, messages=tuple(past), key=key)


async def collect_parts(wire: ScriptedWire, call: ModelCall) -> list[ReplyPart]:
    return [part async for part in wire.stream(call)]


async def collect_text(wire: ScriptedWire, call: ModelCall) -> str:
    return "".join(part.text for part in await collect_parts(wire, call) if isinstance(part, Text))


async def test_each_call_of_a_conversation_returns_the_next_step() -> None:
    wire = ScriptedWire(["one", "two", "three"])

    said = [await collect_text(wire, make_call(turns=turns)) for turns in range(3)]

    assert said == ["one", "two", "three"]


async def test_a_new_wire_continues_from_the_position_of_the_conversation() -> None:
    assert await collect_text(ScriptedWire(["one", "two"]), make_call(turns=1)) == "two"


async def test_an_exhausted_script_names_its_agent_and_its_length() -> None:
    wire = ScriptedWire({"planner": ["one", "two"]})

    with pytest.raises(
        OutsideFailed, match="script of planner has no more steps: it has only 2, but this is call 3"
    ) as caught:
        await collect_text(wire, make_call("planner", turns=2))

    assert not caught.value.retryable


async def test_every_agent_has_a_script_of_its_own() -> None:
    wire = ScriptedWire({"a": ["from a"], "b": "from b"})

    said = (
        await collect_text(wire, make_call("a")),
        await collect_text(wire, make_call("b")),
        await collect_text(wire, make_call("c")),
    )

    assert said == ("from a", "from b", "ok: hi")


async def test_calls_to_the_model_are_recorded() -> None:
    wire = ScriptedWire()

    await collect_text(wire, make_call("a", asked="first"))
    await collect_text(wire, make_call("b", asked="second"))

    assert [(model_call.agent, model_call.messages[-1].text) for model_call in wire.heard] == [
        ("a", "first"),
        ("b", "second"),
    ]


async def test_a_reply_comes_in_pieces_after_its_reasoning_and_before_its_calls() -> None:
    move = Move(says="abcdefg", pieces=3, reasoning="hm", calls=(ToolCall(name="look", arguments={"at": 1}),))

    parts = await collect_parts(ScriptedWire([move]), make_call(turns=0))

    assert parts[:-1] == [
        Reasoning("hm"),
        Text("ab"),
        Text("cd"),
        Text("efg"),
        ToolCallPart(ToolUse(id="call-0-0", name="look", arguments={"at": 1})),
    ]
    assert isinstance(parts[-1], ReplyEnd)
    assert parts[-1].stop == "tool_calls"


async def test_a_text_shorter_than_its_pieces_has_a_piece_for_each_character() -> None:
    parts = await collect_parts(ScriptedWire([Move(says="ab", pieces=9)]), make_call())

    assert parts[:-1] == [Text("a"), Text("b")]


async def test_an_empty_step_is_an_empty_reply() -> None:
    assert await collect_parts(ScriptedWire([{}]), make_call()) == [
        ReplyEnd(stop="stop", usage=Usage(input_tokens=1, calls=1))
    ]


async def test_usage_is_a_token_for_every_four_characters_unless_the_script_says_otherwise() -> None:
    wire = ScriptedWire({"a": ["12345"], "b": [{"says": "x", "usage": {"input_tokens": 7, "cached_tokens": 3}}]})

    counted, explicit = [(await collect_parts(wire, make_call(agent, system="123", asked="45")))[-1] for agent in "ab"]

    assert counted == ReplyEnd(stop="stop", usage=Usage(input_tokens=2, output_tokens=2, calls=1))
    assert explicit == ReplyEnd(stop="stop", usage=Usage(input_tokens=7, cached_tokens=3, calls=1))


@pytest.mark.parametrize(
    ("system", "asked"),
    [
        ('You.\n```script\n["ridden", {"says": "x"}]\n```\nMore.', 'hi\n```script\n["not this"]\n```'),
        ("You.", 'hi\n```script\n["ridden"]\n```'),
        ('You.\r\n```script\r\n["ridden"]\r\n```\r\n', "hi"),
    ],
)
async def test_a_script_may_be_given_in_the_prompt(system: str, asked: str) -> None:
    assert await collect_text(ScriptedWire(), make_call(system=system, asked=asked)) == "ridden"


async def test_only_the_first_message_may_contain_a_script() -> None:
    messages = (
        USER_MESSAGE,
        Message(role="assistant", text="ok"),
        Message(role="user", text='```script\n["late"]\n```'),
    )

    assert find_script("", messages) is None


@pytest.mark.parametrize("block", ["[", '"no list"', '[{"sais": "x"}]', '[{"says": "x", "pieces": 0}]', "[7]"])
async def test_an_invalid_script_in_the_prompt_fails_the_call(block: str) -> None:
    with pytest.raises(OutsideFailed, match=r"the script of a is invalid: .*script") as caught:
        await collect_text(ScriptedWire(), make_call(system=f"```script\n{block}\n```"))

    assert not caught.value.retryable


def test_an_invalid_move_is_a_mistake_that_names_its_position() -> None:
    with pytest.raises(Mistake, match=r"step 2 of the script is invalid: .*sais"):
        ScriptedWire(["fine", {"sais": "x"}])


def test_scripts_read_the_same_from_json_and_from_python() -> None:
    written: list[dict[str, Any]] = [
        {"calls": [{"name": "look"}], "says": "looking"},
        {"says": "x", "fails": {"status": 429, "retry_after": 2, "times": 1}, "half": 2},
    ]

    assert parse_script(written) == (
        Move(says="looking", calls=(ToolCall(name="look"),)),
        Move(says="x", fails=Fails(status=429, retry_after=2, times=1), half=2),
    )


async def test_a_failure_affects_the_first_attempts_of_a_call_and_no_other_call() -> None:
    wire = ScriptedWire([{"says": "at last", "fails": {"status": 429, "retry_after": 3, "times": 2}}])

    failures = []
    for _ in range(2):
        with pytest.raises(OutsideFailed) as caught:
            await collect_text(wire, make_call(key="one"))
        failures.append((caught.value.status, caught.value.retry_after, caught.value.retryable))

    assert failures == [(429, 3, True)] * 2
    assert await collect_text(wire, make_call(key="one")) == "at last"
    with pytest.raises(OutsideFailed, match="429: error simulated by the script"):
        await collect_text(wire, make_call(key="two"))


async def test_attempts_with_numbered_keys_are_attempts_of_one_call() -> None:
    wire = ScriptedWire([{"says": "at last", "fails": {"times": 1}}])

    with pytest.raises(OutsideFailed):
        await collect_text(wire, make_call(key="turn#1/call#1"))

    assert await collect_text(wire, make_call(key="turn#1/call#1~2")) == "at last"


async def test_a_new_wire_knows_from_the_key_which_attempt_it_is() -> None:
    script = [{"says": "at last", "fails": {"times": 1}}]

    assert await collect_text(ScriptedWire(script), make_call(key="turn#1/call#1~2")) == "at last"
    with pytest.raises(OutsideFailed):
        await collect_text(ScriptedWire(script), make_call(key="turn#1~2/call#1"))


@pytest.mark.parametrize(("status", "retryable"), [(400, False), (401, False), (408, True), (503, True), (529, True)])
async def test_the_status_decides_whether_a_failure_is_retryable(status: int, *, retryable: bool) -> None:
    wire = ScriptedWire([{"fails": {"status": status}}])

    for _ in range(3):
        with pytest.raises(OutsideFailed) as caught:
            await collect_text(wire, make_call())

        assert caught.value.retryable is retryable


async def test_half_a_reply_is_delivered_before_it_breaks_off() -> None:
    wire = ScriptedWire([{"says": "abcdefgh", "pieces": 4, "half": 1}])
    stream = wire.stream(make_call())

    first = [await anext(stream), await anext(stream)]
    with pytest.raises(OutsideFailed, match="disconnected") as caught:
        await anext(stream)

    assert first == [Text("ab"), Text("cd")]
    assert caught.value.retryable
    assert await collect_text(wire, make_call()) == "abcdefgh"


async def test_a_silent_model_says_nothing_until_it_is_cancelled() -> None:
    wire = ScriptedWire([{"says": "never", "silent": True}])

    with anyio.move_on_after(0.01) as scope:
        await collect_text(wire, make_call())

    assert scope.cancelled_caught


async def test_garbled_arguments_are_kept_verbatim() -> None:
    wire = ScriptedWire([{"calls": [{"name": "look", "arguments": {"at": 1}}, {"name": "go"}], "garbled": True}])

    parts = await collect_parts(wire, make_call())

    assert parts[:-1] == [
        ToolCallPart(ToolUse(id="call-0-0", name="look", unreadable='{"at":1')),
        ToolCallPart(ToolUse(id="call-0-1", name="go", unreadable="{")),
    ]


async def test_a_garbled_reply_is_a_retryable_failure() -> None:
    with pytest.raises(OutsideFailed, match="sent invalid JSON") as caught:
        await collect_text(ScriptedWire([{"says": "x", "garbled": True}]), make_call())

    assert caught.value.retryable


def test_the_public_names_for_tests_load_nothing_before_they_are_used() -> None:
    program = "import sys, podium.testing; print(sorted(set(sys.modules) & {'anyio', 'aiohttp', 'msgspec', 'asyncio'}))"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_every_public_name_for_tests_is_there() -> None:
    import podium.testing

    assert [getattr(podium.testing, name).__name__ for name in podium.testing.__all__] == podium.testing.__all__
    with pytest.raises(AttributeError, match="Nothing"):
        _ = podium.testing.Nothing
