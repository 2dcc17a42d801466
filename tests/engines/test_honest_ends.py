"""Servers with faults, over HTTP: whatever a model does, the run ends in the right state, with the right sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from podium import Agent, App, Result
from podium.engines.model.model_wire import LONGEST_REPLY
from podium.engines.model.reply_recorder import LEAST_CHARACTERS, count_endless
from podium.files.settings import Settings
from podium.files.settings_document import ProviderLimits
from podium.store.fault_injection import refuse_after
from podium.testing import ModelServer, Move, calls
from podium.values.event import (
    ModelAskedAgain,
    ModelReplied,
    SessionRevived,
    TextSuperseded,
    ToolAnswered,
    ToolCalled,
)
from podium.values.usage import TurnLimits

from ..studio import Studio

ENDLESS = {"says": "You're right. " * 3_000, "pieces": 1_000, "pace": 0.001}


async def run_served(
    studio: Studio,
    moves: list[Any],
    *,
    fault: Any = None,
    settings: Settings | None = None,
    tools: Any = (),
    request: str = "go",
    **keys: Any,
) -> tuple[Result, ModelServer]:
    """Run an agent with a model that is served over HTTP and follows this script."""
    async with ModelServer({"m": moves}) as server:
        environ = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "x"}
        async with App(settings or studio.settings, environ=environ, fault=fault) as app:
            lead = Agent(name="lead", model="openai:m", tools=tools, **keys)
            result = await app.run(lead, request)
    return result, server


# Text instead of calls


def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}."


async def test_a_server_that_answers_with_text_instead_of_calls_gets_its_calls_run(studio: Studio) -> None:
    written = '```json\n{\n  "name": "greet",\n  "arguments": {"name": "Ann"}\n}\n```'

    result, server = await run_served(studio, [{"says": written, "pieces": 9}, "Greeted."], tools=[greet])

    assert result.text == "Greeted."
    assert [event.text for event in studio.events(result, ToolAnswered)] == ["Hello, Ann."]
    assert server.calls[1].call.messages[-1].text == "Hello, Ann."
    assert studio.events(result, TextSuperseded)


# Cut off


async def test_a_server_that_always_cuts_at_the_length_is_told_as_cut_off(studio: Studio) -> None:
    half = {"says": "half of it", "stop": "length"}

    result, _ = await run_served(studio, [half, half])

    assert result.outcome == "failed"
    assert "cut off at the model's token limit, even after the model was asked to continue" in (result.error or "")
    assert [event.reason for event in studio.events(result, ModelAskedAgain)] == [
        "its reply was cut off at the token limit"
    ]


async def test_the_limit_of_an_agent_and_of_its_provider_reach_the_server(studio: Studio) -> None:
    limited = structs.replace(studio.settings, providers={"openai": ProviderLimits(max_tokens=500)})

    _, none = await run_served(studio, ["ok"])
    _, agent = await run_served(studio, ["ok"], max_tokens=700)
    _, both = await run_served(studio, ["ok"], max_tokens=700, settings=limited)

    assert [server.calls[0].call.max_tokens for server in (none, agent, both)] == [None, 700, 500]


# Repetition


async def test_a_reply_that_repeats_for_ever_is_stopped_and_asked_for_once_more(studio: Studio) -> None:
    result, server = await run_served(studio, [ENDLESS, "Short."])

    assert result.text == "Short."
    first, _ = studio.events(result, ModelReplied)
    assert (first.stop, len(first.text) < 100) == ("repetition", True)
    assert first.usage.output_tokens < 3_000
    assert "kept repeating the same text" in server.calls[1].call.messages[-1].text


async def test_a_model_that_repeats_for_ever_twice_has_failed(studio: Studio) -> None:
    result, _ = await run_served(studio, [ENDLESS, ENDLESS, "never"])

    assert (result.outcome, result.text) == ("failed", "")
    assert result.error == "lead: its model repeated the same text endlessly, even when asked again"


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.slow)])
async def test_a_run_that_died_anywhere_around_a_repetition_ends_the_same_way(studio: Studio, stride: int) -> None:
    deaths = 0
    for number in range(2, 40, stride):
        first, _ = await run_served(studio, [ENDLESS, ENDLESS], fault=refuse_after(number))
        if first.error == "lead: its model repeated the same text endlessly, even when asked again":
            break
        studio.expire_leases()
        async with ModelServer({"m": [ENDLESS, ENDLESS]}) as server:
            environ = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "x"}
            async with App(studio.settings, environ=environ) as app, app.resume(first.run_id) as resumed:
                result = await resumed.result()
        assert result.error == "lead: its model repeated the same text endlessly, even when asked again", number
        assert len(studio.events(result, ModelReplied)) == 2, number
        deaths += 1
    assert deaths > 8 // stride


async def test_space_without_end_after_an_answer_is_cut(studio: Studio) -> None:
    result, _ = await run_served(studio, [{"says": "The answer." + "\n" * 9_000, "pieces": 900, "pace": 0.001}])

    assert result.text == "The answer."


@pytest.mark.parametrize("unit", ["You're right. ", "x" * 240 + "y" * 250 + "\n"])
async def test_a_repetition_is_stopped_before_a_thousand_tokens(studio: Studio, unit: str) -> None:
    endless = {"says": unit * (16_000 // len(unit)), "pieces": 4_000, "pace": 0.0001}

    result, _ = await run_served(studio, [endless, endless])

    assert result.error == "lead: its model repeated the same text endlessly, even when asked again"
    first, *_ = studio.events(result, ModelReplied)
    assert first.usage.output_tokens < 1_000


def feed(text: str, size: int = 4) -> int:
    """Return what is noticed at the end of this text, which came in pieces of this size."""
    return count_endless([text[at : at + size] for at in range(0, len(text), size)])


@pytest.mark.parametrize(
    "unit", ["a", "You're right. ", "> \n> You can only respond to the topic.\n", "x" * 100 + "y" * 90]
)
def test_a_repetition_of_any_unit_is_noticed(unit: str) -> None:
    assert feed("It begins well. " + unit * 5_000) >= LEAST_CHARACTERS - len(unit)


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{n}. You can only respond to the topic.\n" for n in range(2_000)),
        "| a | b |\n" * 200,
        "-" * 2_000,
        ("def f(x):\n    return x\n\n" * 3 + "print(f(1))\n") * 10,
    ],
)
def test_a_text_that_resembles_one_is_not_stopped(text: str) -> None:
    assert feed(text) == 0


@pytest.mark.parametrize("size", [100, 2_100, 8_000])
def test_a_repetition_is_noticed_however_large_the_pieces_are(size: int) -> None:
    assert feed("It begins well. " + "You're right. " * 5_000, size) >= LEAST_CHARACTERS


async def test_a_reply_without_end_is_stopped_at_a_limit_and_asked_for_once_more(studio: Studio) -> None:
    counted = "".join(f"{number} " for number in range(200_000))
    assert len(counted) > LONGEST_REPLY

    result, server = await run_served(studio, [{"says": counted, "pieces": 100}, "Short."])

    assert result.text == "Short."
    first, _ = studio.events(result, ModelReplied)
    assert (first.stop, len(first.text)) == ("endless", 1_000)
    assert "did not end" in server.calls[1].call.messages[-1].text


async def test_a_tool_call_without_end_fails_at_a_limit(studio: Studio) -> None:
    name = "".join(f"{number} " for number in range(200_000))
    calls = {"calls": [{"name": "greet", "arguments": {"name": name}}], "pieces": 100}

    result, _ = await run_served(studio, [calls], tools=[greet])

    assert result.outcome == "failed"
    assert "sent tool calls of more than 1,000,000 characters" in str(result.error)


def test_a_reply_that_came_in_one_piece_is_not_stopped() -> None:
    assert count_endless(["x" * 50_000]) == 0
    assert count_endless([]) == 0


# Silence


async def test_a_server_that_is_silent_for_longer_than_the_limit_times_the_turn_out(tmp_path: Path) -> None:
    studio = Studio(tmp_path, turn_limits=TurnLimits(thinking=0.3))

    result, _ = await run_served(studio, [{"says": "late", "silent": True}])

    assert result.outcome == "timed_out"
    assert result.error == "lead: timed out after 0.3 s without output"


# Empty replies


async def test_a_server_that_returns_empty_replies_is_a_failure_after_one_more_try(studio: Studio) -> None:
    result, server = await run_served(studio, [{"says": ""}])

    assert (result.outcome, result.error) == ("failed", "lead: its reply was empty")
    assert len(server.calls) == 2
    assert len(studio.events(result, SessionRevived)) == 1


async def test_the_calls_before_a_revival_count_towards_the_most_turns(studio: Studio) -> None:
    calls = [{"calls": [{"name": "greet", "arguments": {"name": name}}]} for name in ("Ann", "Bob", "Cid", "Dan")]

    result, server = await run_served(studio, [calls[0], {"says": ""}, *calls], tools=[greet], max_turns=3)

    assert len(server.calls) == 3
    assert result.error == "lead: no answer after 3 model calls (maxTurns)"


# Identical calls


def make_counter() -> tuple[list[str], Callable[[str], str]]:
    done: list[str] = []

    def note(text: str) -> str:
        """Note something."""
        done.append(text)
        return f"noted {len(done)}"

    return done, note


def note_move(text: str) -> Move:
    return calls("note", text=text)


async def test_a_second_identical_call_gets_the_first_answer_and_the_third_ends_in_a_report(studio: Studio) -> None:
    done, note = make_counter()

    result, server = await run_served(studio, [*[note_move("a")] * 3, "I noted a."], tools=[note])

    assert result.text == "I noted a."
    assert done == ["a"]
    answers = [event.text for event in studio.events(result, ToolAnswered)]
    assert answers[0] == "noted 1"
    assert all("so the call was not repeated" in text and text.endswith("noted 1") for text in answers[1:])
    assert len(studio.events(result, ToolCalled)) == 3
    assert [bool(received.call.tools) for received in server.calls] == [True, True, True, False]
    assert "3 times in a row" in server.calls[3].call.messages[-1].text


async def test_another_call_in_between_makes_it_a_new_call(studio: Studio) -> None:
    done, note = make_counter()

    await run_served(studio, [note_move("a"), note_move("b"), note_move("a"), "ok"], tools=[note])

    assert done == ["a", "b", "a"]


@pytest.mark.parametrize("texts", ["ab", "abc", "abcd", "aab"])
async def test_a_cycle_of_calls_ends_in_a_report(studio: Studio, texts: str) -> None:
    done, note = make_counter()

    result, server = await run_served(studio, [*map(note_move, texts * 3), "I noted them."], tools=[note])

    assert result.text == "I noted them."
    assert len(done) == len(texts.replace("aa", "a")) * 3
    assert f"the same {len(texts)} calls 3 times in turn" in server.calls[-1].call.messages[-1].text
    assert not server.calls[-1].call.tools


async def test_calls_whose_answers_change_are_no_cycle(studio: Studio) -> None:
    words = iter(["red", "red", "green", "green", "blue", "blue"])

    def look(place: str) -> str:
        """Look at a place."""
        return next(words)

    moves = [{"calls": [{"name": "look", "arguments": {"place": place}}]} for place in "ab" * 3]

    result, server = await run_served(studio, [*moves, "I looked."], tools=[look])

    assert result.text == "I looked."
    assert server.calls[-1].call.tools


async def test_other_calls_in_between_make_no_cycle(studio: Studio) -> None:
    done, note = make_counter()
    moves = [note_move(one) for number in range(8) for one in ("test", f"change {number}")]

    result, _ = await run_served(studio, [*moves, "ok"], tools=[note])

    assert (result.text, len(done)) == ("ok", 16)


async def test_a_model_that_calls_on_instead_of_reporting_has_failed(studio: Studio) -> None:
    done, note = make_counter()
    written = '{"name": "note", "arguments": {"text": "a"}}'

    result, _ = await run_served(studio, [*[note_move("a")] * 3, written, "never"], tools=[note])

    assert done == ["a"]
    assert result.outcome == "failed"
    assert result.error == ("lead: its model called note with the same arguments over and over, and gave no report")


async def test_a_later_turn_hears_that_the_model_was_asked_for_a_report(studio: Studio) -> None:
    _, note = make_counter()
    moves: list[Any] = [*[note_move("a")] * 3, "I noted a.", "Yes."]
    async with ModelServer({"m": moves}) as server:
        environ = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "x"}
        async with App(studio.settings, environ=environ) as app:
            lead = Agent(name="lead", model="openai:m", tools=[note])
            first = await app.run(lead, "go")
            async with app.start(lead, "sure?", after=first.run_id) as run:
                result = await run.result()

    assert result.text == "Yes."
    asked, later = server.calls[3].call.messages, server.calls[4].call.messages
    assert [message.text for message in later[: len(asked)]] == [message.text for message in asked]
