"""Replies that are no answers: what counts as one, and what becomes of the agent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podium.patterns.answer_check import describe_non_answer
from podium.values.event import TurnStarted

from ..studio import Studio

REQUEST = "Name one risk of caching prices in a shop."
TASK = (
    f"You help.\n\n## Original User Request (context)\n{REQUEST}\n\n"
    "## Your Assigned Task\nwrite a letter about prices to the customer"
)
HANDED = f"A draft.\n\n[context: original request]\n> {REQUEST}\n\n[context: handoff from drafter]"
CALL = '{"name": "vote_conclude", "arguments": {"ready": true}}'


@pytest.mark.parametrize(
    ("text", "prompt", "why"),
    [
        (CALL, REQUEST, "the reply contains only a tool call"),
        (f"```json\n{CALL}\n```", REQUEST, "the reply contains only a tool call"),
        ("<tools></tools>", REQUEST, "the reply contains only a tool call"),
        ("[[GROUP_REFLECT_COMPLETE]]", REQUEST, "the reply contains only a marker"),
        ("**[[needs_iteration]]**\n\n[[REFLECTION_COMPLETE]]", REQUEST, "the reply contains only a marker"),
        (REQUEST, REQUEST, "the reply only repeats the request"),
        (f"> {REQUEST.upper()}!", REQUEST, "the reply only repeats the request"),
        (REQUEST, TASK, "the reply only repeats the request"),
        ("Write letter about prices to the customer.", TASK, "the reply only repeats the request"),
        (TASK, TASK, "the reply only repeats the request"),
        (REQUEST, HANDED, "the reply only repeats the request"),
    ],
)
def test_replies_that_are_no_answers(text: str, prompt: str, why: str) -> None:
    assert (describe_non_answer(text, prompt) or "").startswith(why)


@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        ("", REQUEST),
        ("Prices change.", REQUEST),
        (f"{REQUEST} Stale prices.", REQUEST),
        ("blue", "red or blue?"),
        ("A short draft of five words.", f"A short draft of five words.\n\n{HANDED.partition('.')[2].strip()}"),
        ("Refund or resend?", "Refund or resend?"),
        ("A fast tool for teams of agents.", "Choose one:\n\nA fast tool for teams of agents.\n\nA slow one."),
        (f"This is a call: {CALL}", REQUEST),
        ('{"name": "Alice", "age": 3}', REQUEST),
        ("The marker is [[NEEDS_ITERATION]].", REQUEST),
    ],
)
def test_answers_that_resemble_them(text: str, prompt: str) -> None:
    assert describe_non_answer(text, prompt) is None


SAMPLES = [
    json.loads(line) for line in (Path(__file__).parents[1] / "samples" / "real_replies.jsonl").read_text().splitlines()
]
MARKERS = {51, 106, 107}
ECHOES = {14, 17, 22, 60, 154}
UNOFFERED_OR_ECHOED_TOOLS = {1, 20, 31, 83, 110, 115, 117, 140}


@pytest.mark.parametrize("number", range(len(SAMPLES)))
def test_nothing_in_the_replies_of_real_models_that_is_only_a_marker_or_an_echo_is_an_answer(number: int) -> None:
    why = describe_non_answer(SAMPLES[number]["reply"], SAMPLES[number]["asked"])

    if number in MARKERS:
        assert why == "the reply contains only a marker"
    elif number in ECHOES:
        assert why == "the reply only repeats the request"
    elif number in UNOFFERED_OR_ECHOED_TOOLS:
        assert (why or "").startswith("the reply contains only a tool call")
    else:
        # The others are prose, empty, or calls that are read as such before anybody asks whether they are answers.
        assert why is None or why.startswith("the reply contains only a tool call")


async def test_an_agent_that_gives_no_answer_is_asked_once_more(studio: Studio) -> None:
    studio.agent("lead", says=[CALL, "Prices change."])

    result = await studio.run("lead", REQUEST)

    assert result.text == "Prices change."
    asked = studio.events(result, TurnStarted)[1].prompt
    why = "the reply contains only a tool call or a tool description, written as text"
    assert asked.startswith(f"Your last reply is not an answer: {why}.")


async def test_an_agent_that_gives_no_answer_twice_has_failed(studio: Studio) -> None:
    studio.agent("lead", says=[REQUEST, "[[REFLECTION_COMPLETE]]", "never"])

    result = await studio.run("lead", REQUEST)

    assert result.outcome == "failed"
    assert result.error == "lead: it gave no answer, even when it was asked again: the reply contains only a marker"
