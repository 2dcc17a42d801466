"""The limit for a discussion: aiohttp sends each message once to each member, with the same text, and nothing else.

No round repeats earlier messages: each starts a new conversation. Only the coordinator receives all
messages a second time, for its answer.
"""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp

from ..child import Clock, serve
from ..discussion_scenario import (
    ANSWER,
    COORDINATOR,
    LEAD_PROMPT,
    LEAD_TOOLS,
    MEMBER,
    MEMBER_PROMPT,
    MEMBER_TOOLS,
    PROMPTS,
    TOPIC,
    member_names,
)
from ..heap import warm_up_heap
from .raw_chat import Message, stream_reply

Said = dict[str, str]
"""The message of each member in a round."""


async def discuss(request: dict[str, Any]) -> dict[str, float]:
    """Run one discussion with this number of `members` and `rounds`."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        with Clock() as clock:
            answer = await Discussion(client, request["url"], member_names(request["members"])).answer(
                request["rounds"]
            )
    return clock.as_sample(1, failed=int(answer != ANSWER))


class Discussion:
    """The participants, and how each is called."""

    def __init__(self, client: aiohttp.ClientSession, url: str, members: list[str]) -> None:
        self._client = client
        self._url = url
        self._members = members
        self._names = ", ".join(members)

    async def answer(self, rounds: int) -> str:
        """Return the coordinator's answer based on all messages."""
        transcript, said = "", Said()
        for number in range(1, rounds + 1):
            said = await self._run_round(number, said)
            transcript += format_messages(said, number)
            if number < rounds:
                await self._ask_coordinator(
                    "moderate", names=self._names, round=number, news=format_messages(said, number)
                )
        return await self._ask_coordinator("conclude", why="max rounds", request=TOPIC, transcript=transcript)

    async def _run_round(self, number: int, before: Said) -> Said:
        """Call all members at once, each with the messages of the others from the round before."""
        async with asyncio.TaskGroup() as group:
            speaking = {
                name: group.create_task(self._ask_member(number, {one: before[one] for one in before if one != name}))
                for name in self._members
            }
        return {name: task.result() for name, task in speaking.items()}

    async def _ask_member(self, number: int, news: Said) -> str:
        words = {"names": self._names, "round": number, "request": TOPIC, "news": format_messages(news, number - 1)}
        messages = start_conversation(MEMBER_PROMPT, PROMPTS["round"].format(**words))
        return await stream_reply(self._client, self._url, MEMBER, messages, tools=MEMBER_TOOLS)

    async def _ask_coordinator(self, template: str, **words: object) -> str:
        messages = start_conversation(LEAD_PROMPT, PROMPTS[template].format(**words))
        return await stream_reply(self._client, self._url, COORDINATOR, messages, tools=LEAD_TOOLS)


def start_conversation(system: str, words: str) -> list[Message]:
    """Start a conversation."""
    return [{"role": "system", "content": system}, {"role": "user", "content": words}]


def format_messages(said: Said, number: int) -> str:
    """Format the messages of a round for a prompt."""
    return "".join(f"\n[{name}, round {number}]\n{text}\n" for name, text in said.items())


if __name__ == "__main__":
    warm_up_heap()
    serve(discuss=discuss)
