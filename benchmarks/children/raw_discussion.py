"""The limit of a discussion: aiohttp sending everybody each message once, in the same words, and nothing else.

No round repeats what was sent before: each begins a new conversation. Only the coordinator is sent all
of it a second time, for its answer.
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
"""What each said in a round."""


async def discuss(request: dict[str, Any]) -> dict[str, float]:
    """One discussion of so many `members` in so many `rounds`."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        with Clock() as clock:
            answer = await Discussion(client, request["url"], member_names(request["members"])).answer(
                request["rounds"]
            )
    return clock.as_sample(1, failed=int(answer != ANSWER))


class Discussion:
    """Those who talk, and how each is asked."""

    def __init__(self, client: aiohttp.ClientSession, url: str, members: list[str]) -> None:
        self._client = client
        self._url = url
        self._members = members
        self._names = ", ".join(members)

    async def answer(self, rounds: int) -> str:
        """What the coordinator makes of all that was said."""
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
        """Everybody at once, each with what the others said in the round before."""
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
    """A conversation that begins."""
    return [{"role": "system", "content": system}, {"role": "user", "content": words}]


def format_messages(said: Said, number: int) -> str:
    """Messages of a round as they are told."""
    return "".join(f"\n[{name}, round {number}]\n{text}\n" for name, text in said.items())


if __name__ == "__main__":
    warm_up_heap()
    serve(discuss=discuss)
