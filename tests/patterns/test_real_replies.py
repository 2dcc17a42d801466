"""Replies of real small models to Podium's prompts, each with what a person reads in it.

`samples/real_replies.jsonl` has one reply a line. The tables name a reply by its line, counted from 0. Replies that are
tool calls for an agent's own tools belong to the tests of the tool loop.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from podium.core.session import Reply
from podium.patterns.discussion_messages import TOOL_NAMES, find_spoken_text
from podium.patterns.dispatch import parse_plan
from podium.patterns.plan_drafting import read_plan_reply
from podium.patterns.router import parse_choice
from podium.patterns.verdict import describe_missing, is_complete, needs_iteration, strip_verdict

SAMPLES = Path(__file__).parents[1] / "samples"
REPLIES: list[dict[str, Any]] = [
    msgspec.json.decode(line) for line in (SAMPLES / "real_replies.jsonl").read_bytes().splitlines()
]
DESK = ("billing", "technical", "shipping")
TRIAGE = ("answer", "investigate")

ROUTES = {
    1: (TRIAGE, "answer"),  # a copy of the tool's definition, and a call with the destination as its name
    31: (TRIAGE, "investigate"),  # the same without `agent` among the arguments
    39: (TRIAGE, "investigate"),  # "Choose investigate."
    141: (DESK, ""),  # talks about itself
    142: (DESK, ""),
    143: (DESK, ""),  # a Python program
    144: (DESK, ""),
    155: (DESK, ""),  # repeats one sentence
    113: (DESK, ""),  # advice to the customer, longer than a choice
    114: (DESK, "shipping"),  # "Shipping"
    117: (DESK, "shipping"),  # `{{"name": "shipping", …}}`
    118: (DESK, "shipping"),  # the same in a fence with an apology
}
"""The destinations, and the one that the reply chooses."""

PLANS = {
    13: ["billing", "technical", "shipping"],
    24: ["billing", "technical", "shipping"],
    49: ["billing", "technical", "shipping"],
    109: ["billing", "technical", "shipping"],
    18: [],  # answers the customer
    145: [],  # invents rules about placeholders
    146: [],
    147: [],  # repeats the format with NAME
    148: [],
}
"""The workers to which the reply assigns a task, in order."""

VERDICTS = {
    51: (False, ""),  # only a sentinel: no answer was given
    106: (False, ""),  # both sentinels, for ever
    107: (False, ""),
    108: (False, "I need to understand more about the caching prices risk before I can provide a detailed response."),
    15: (False, None),  # a synthesis without a verdict
    26: (False, None),
}
"""Whether the work is complete, and what is missing. None stands for no verdict."""

SAID = {
    19: "",  # only a call to broadcast
    21: "",
    52: "",
    53: "",  # only a vote
    54: "",  # PASS
    55: "",
    56: "",
    57: "",  # doubled braces
    59: "",
    61: "",
    62: "",  # two calls in one fence
    63: "",
    64: "",
    67: "",
    69: "",
    71: "",
    72: "",
    73: "",
    75: "",  # a call as the conclusion of a discussion
    76: "",
    80: "",
    81: "",
    82: "",
    83: "",
    132: "",
    133: "",
    135: "",
    136: "",
    137: "",
    22: "",  # the topic again, as the conclusion
    60: "",
    68: "",
    70: "",
    74: "",
    77: "",
    149: "A parcel came broken. Refund or resend?\nYou take part in",  # the prompt, garbled
    151: "A parcel came broken. Refund or resend?\nYou take part in",
    152: "The chat is currently over",
    20: "You may call one or more functions",
    150: "The chat is currently over",
}
"""What the reply says to people in words; empty if it is only calls, PASS or nothing."""


@pytest.mark.parametrize("line", ROUTES)
def test_a_route_is_read_as_a_person_reads_it(line: int) -> None:
    destinations, agent = ROUTES[line]

    assert parse_choice(Reply(text=REPLIES[line]["reply"]), destinations).agent == agent


@pytest.mark.parametrize("line", PLANS)
def test_a_plan_is_read_as_a_person_reads_it(line: int) -> None:
    read = read_plan_reply(REPLIES[line]["reply"], DESK, aliases={})

    assert [one.worker for one in read.plan.assignments] == PLANS[line]
    assert read.plan == parse_plan(REPLIES[line]["reply"], DESK)
    assert not read.claims_completion


@pytest.mark.parametrize("line", VERDICTS)
def test_a_verdict_is_read_as_a_person_reads_it(line: int) -> None:
    text = REPLIES[line]["reply"]
    complete, missing = VERDICTS[line]

    assert is_complete(text) is is_complete(text, group=False) is complete
    if missing is None:
        assert not needs_iteration(text)
        assert strip_verdict(text) == text
    else:
        assert strip_verdict(text) == ""
        if missing:
            assert describe_missing(text) == missing


@pytest.mark.parametrize("line", SAID)
def test_only_words_are_said_in_a_discussion(line: int) -> None:
    said = find_spoken_text(REPLIES[line]["reply"], TOOL_NAMES, topic="A parcel came broken. Refund or resend?")

    assert said.startswith(SAID[line]) if SAID[line] else said == ""


def test_every_reply_about_routes_plans_verdicts_and_discussions_is_read() -> None:
    asked = ("You lead a team", "That reply assigns nothing", "Iteration ", "Work on this until")
    ours = {
        line
        for line, one in enumerate(REPLIES)
        if {"route_to", "broadcast"} & set(one["tools"]) or one["asked"].startswith(asked)
    }
    empty = {line for line, one in enumerate(REPLIES) if not one["reply"].strip()}

    assert ours - empty - ROUTES.keys() - PLANS.keys() - VERDICTS.keys() - SAID.keys() == set()
