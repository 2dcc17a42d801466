"""The scenario of the discussion benchmark: the number of members and rounds, and everybody's instructions.

The requested model shows who is calling: a member or the coordinator. Each member says something
new of the same length each time, so that only the amount of text sent grows. All programs send
the same text.
"""

from __future__ import annotations

from string import ascii_letters
from typing import Any

MEMBER = "member"
COORDINATOR = "coordinator"
LEAD = "chair"

TOPIC = "Shall the harbour get a second pier, and who is to pay for it?"
ANSWER = "It gets one, and those who lie there pay."
GO_ON = "Go on."

PROMPTS = {
    "round": """\
You take part in a discussion of {names}, round {round}.

## Topic
{request}
{news}
Say with broadcast what the others should know, and vote with vote_conclude whether the discussion can end.""",
    "moderate": """\
You coordinate a discussion of {names}. Round {round} is over.
{news}
Say with broadcast what is still to be talked about, or reply that there is nothing.""",
    "conclude": """\
The discussion is over ({why}). Write the answer to the topic from what was said, and from nothing else.

## Topic
{request}

## What was said since you last looked
{transcript}""",
}
IS_OVER = "The discussion is over"

MEMBER_PROMPT = "You sit on the council of a small harbour."
LEAD_PROMPT = "You chair the council of a small harbour."


def make_message(number: int) -> str:
    """Return message number `number`: its words differ from those of every other message, its length does not."""
    return " ".join(f"{number:05}{letter}" for letter in ascii_letters)


def member_names(members: int) -> list[str]:
    """Return the names of the participants besides the coordinator."""
    return [f"member{number}" for number in range(1, members + 1)]


def _describe_tool(name: str, description: str, **fields: str) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {field: {"type": kind} for field, kind in fields.items()},
        "required": [next(iter(fields))],
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


_BROADCAST = _describe_tool("broadcast", "Say something to all members of the discussion.", message="string")
MEMBER_TOOLS = [
    _BROADCAST,
    _describe_tool("vote_conclude", "Vote on whether the discussion can end.", ready="boolean", reason="string"),
]
LEAD_TOOLS = [_BROADCAST]
"""The tools in the format of OpenAI's API, for programs that build requests themselves."""
