"""What the discussion is about: so many members, so many rounds, and what everybody is told.

Which of two models is asked says who asks: a member, or the one that coordinates. Each member says
something new each time it is asked, always as long, so that what grows is what is sent. Everybody sends
the same words.
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
    """What is said as the `number`th thing: other words than in every message before, and as many characters."""
    return " ".join(f"{number:05}{letter}" for letter in ascii_letters)


def member_names(members: int) -> list[str]:
    """Who takes part besides the coordinator."""
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
    _describe_tool("vote_conclude", "Vote whether the discussion can end.", ready="boolean", reason="string"),
]
LEAD_TOOLS = [_BROADCAST]
"""The tools as OpenAI's API wants them, for those who write that themselves."""
