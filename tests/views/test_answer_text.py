"""The text of an answer, piece by piece, as a client shows it."""

from __future__ import annotations

import pytest

from podium.values.action import Action
from podium.values.agent import Agent
from podium.values.event import (
    Entry,
    Event,
    ModelReplied,
    RunStarted,
    TextStreamed,
    TextSuperseded,
    ToolCalled,
    TurnEnded,
    TurnStarted,
)
from podium.values.request import Request
from podium.views.answer_text import AnswerText

STARTED = TurnStarted(agent="ada", engine="model", prompt="Go")
CALLED = ToolCalled(id="c1", action=Action(run="r", agent="ada", tool="bash"))


def read_answer(*events: Event, final: str) -> str:
    """Return everything that a client has received at the end of a run with these events."""
    answer = AnswerText()
    first = RunStarted(agent="ada", request=Request(text="Go"), agents=(Agent(name="ada"),))
    entries = [
        Entry(run="r", seq=seq, at=float(seq), scope="ada", operation="ada", event=event)
        for seq, event in enumerate((first, *events), 1)
    ]
    return "".join([*map(answer.apply, entries), answer.finish(final)])


@pytest.mark.parametrize(
    "events",
    [
        (ModelReplied(model="m", text="I run it."), CALLED, TextStreamed(text="I run it.")),
        (TextStreamed(text="I run "), ModelReplied(model="m", text="I run it."), CALLED, TextStreamed(text="it.")),
        (TextStreamed(text="I run it."), ModelReplied(model="m", text="I run it."), CALLED),
        (ModelReplied(model="m", text="I run it."), CALLED),
    ],
    ids=["streamed late", "half of it late", "streamed in time", "never streamed"],
)
def test_each_reply_is_shown_once_whenever_its_text_is_recorded(events: tuple[Event, ...]) -> None:
    done = (ModelReplied(model="m", text="It ran."), TurnEnded(outcome="succeeded", text="It ran."))

    assert read_answer(STARTED, *events, *done, final="It ran.") == "I run it.\n\nIt ran."


def test_late_text_of_two_replies_in_one_piece_is_shown_once() -> None:
    events = (ModelReplied(model="m", text="I run it."), CALLED, TextStreamed(text="I run it.It r"))

    seen = read_answer(STARTED, *events, TurnEnded(outcome="succeeded", text="It ran."), final="It ran.")

    assert seen == "I run it.\n\nIt ran."


def test_a_turn_that_repeats_the_text_of_the_last_one_is_shown() -> None:
    turn = (STARTED, ModelReplied(model="m", text="Yes."), TurnEnded(outcome="succeeded", text="Yes."))

    seen = read_answer(*turn, STARTED, TextStreamed(text="Yes."), *turn[1:], final="Yes.")

    assert seen == "Yes.\n\nYes."


def test_a_reply_that_starts_again_follows_what_was_sent() -> None:
    events = (TextStreamed(text="Wro"), TextSuperseded(), TextStreamed(text="Right."))

    assert read_answer(STARTED, *events, final="Right.") == "Wro\n\nRight."
