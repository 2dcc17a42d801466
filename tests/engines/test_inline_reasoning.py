"""Reasoning in the text of a reply: nobody takes it for the reply, and it is on the timeline as reasoning."""

from __future__ import annotations

import time
from typing import Any

import pytest

from podium import Agent, App
from podium.core.engine import Reasoning, Text
from podium.engines.inline_reasoning import MessageText, separate_reasoning
from podium.testing import ModelServer
from podium.values.event import ModelReplied

from ..studio import Studio

BOTH = [
    ("<think>thought</think>reply", "thought", "reply"),
    ("<think>\nthought\n</think>\n\nreply", "thought", "reply"),
    ("\n <Thinking>thought</Thinking> reply", "thought", "reply"),
    ("<reasoning>thought</reasoning>\nreply", "thought", "reply"),
    ("<think></think>\n\nreply", "", "reply"),
    ("<think>one</think>\n<think>two</think>\nreply", "one\ntwo", "reply"),
    ("<think>one <think>two</think> three</think> reply", "one <think>two\nthree", "reply"),
    ("<thinking>thought</think>reply", "thought", "reply"),
    ("<think>never closed [[GROUP_REFLECT_COMPLETE]]", "never closed [[GROUP_REFLECT_COMPLETE]]", ""),
    ("thought\n</think>\n\nreply", "thought", "reply"),
    ("thought [[DONE]]</think>reply", "thought [[DONE]]", "reply"),
    ("I write `<think>` first.\n</think>\nreply", "I write `<think>` first.", "reply"),
    ("Sure.\n<think>thought</think>\nreply", "Sure.\n<think>thought", "reply"),
    ("@a: the thought\n</THINK>\n@b: the reply", "@a: the thought", "@b: the reply"),
]
KEPT = [
    "no tags at all",
    "a < b",
    "Put it between <think> and </think>, as many models do.",
    "The tag `</think>` ends the reasoning.",
    'The tag "</think>" ends it.',
    "It ends with </think>.",
    "`if x: print('</think>')` prints it",
    "```\n</think>\n```\nis the end of the block.",
    '{"answer": "it ends with </think> and goes on"}',
    "<thinker>is another tag</thinker>",
    "Some <reasoning>words</reasoning> here",
]


@pytest.mark.parametrize(("said", "reasoning", "text"), BOTH)
def test_reasoning_is_separated_from_the_reply(said: str, reasoning: str, text: str) -> None:
    assert separate_reasoning(said) == (reasoning, text)


@pytest.mark.parametrize("said", KEPT)
def test_a_reply_that_writes_about_such_tags_keeps_them(said: str) -> None:
    assert separate_reasoning(said) == ("", said)


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("said", [said for said, _, _ in BOTH] + KEPT)
def test_pieces_of_any_size_show_the_reply_or_are_known_to_differ_from_it(said: str, size: int) -> None:
    message = MessageText()

    pieces = [shown for place in range(0, len(said), size) for shown in message.add_text(said[place : place + size])]

    assert message.text == separate_reasoning(said).text
    shown = "".join(piece.text for piece in pieces if isinstance(piece, Text))
    assert message.is_shown == (shown == message.text)


def test_a_block_of_reasoning_is_shown_as_reasoning_while_it_arrives() -> None:
    message = MessageText()

    pieces = [message.add_text(piece) for piece in ("<thi", "nk>one", " two</th", "ink>", "reply", " goes on")]

    assert pieces == [
        [],
        [Reasoning("one")],
        [Reasoning(" two")],
        [Reasoning("")],
        [Text("reply")],
        [Text(" goes on")],
    ]


@pytest.mark.parametrize("said", ["<think></think>", "<think></reasoning>", "`</think>`", "<think>", "</think>.", "\n"])
def test_a_long_reply_of_tags_is_read_in_a_moment(said: str) -> None:
    started = time.perf_counter()

    separate_reasoning(said * (400_000 // len(said)))

    assert time.perf_counter() - started < 2


async def run_served(studio: Studio, moves: list[Any], **keys: Any) -> Any:
    async with ModelServer({"m": moves}) as server:
        environ = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "x"}
        async with App(studio.settings, environ=environ) as app:
            return await app.run(Agent(name="lead", model="openai:m", **keys), "go")


THOUGHTS = ["<think>secret thought</think>\n\nThe answer.", "secret thought\n</think>\n\nThe answer."]


@pytest.mark.parametrize("said", THOUGHTS)
async def test_a_person_gets_the_reply_without_the_reasoning_in_it(studio: Studio, said: str) -> None:
    result = await run_served(studio, [{"says": said, "pieces": 5}])

    assert result.text == "The answer."
    [replied] = studio.events(result, ModelReplied)
    assert (replied.text, replied.reasoning) == ("The answer.", "secret thought")


async def test_a_tool_call_in_the_reasoning_is_not_made_and_one_after_it_is(studio: Studio) -> None:
    made: list[str] = []

    def note(word: str) -> str:
        """Note a word."""
        made.append(word)
        return "noted"

    def call(word: str) -> str:
        return f'{{"name": "note", "arguments": {{"word": "{word}"}}}}'

    result = await run_served(
        studio, [f"<think>{call('thought')}</think>\n{call('meant')}", f"{call('more')}\n</think>\nDone."], tools=[note]
    )

    assert made == ["meant"]
    assert result.text == "Done."
