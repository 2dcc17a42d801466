"""A conversation continues from run to run, and every agent in it knows what was said before."""

from __future__ import annotations

from typing import Any

import pytest

from podium import Result
from podium.core.earlier_runs import UNFINISHED_MARK
from podium.store.fault_injection import refuse_after
from podium.testing import calls
from podium.values.agent import Router
from podium.values.errors import Mistake
from podium.values.event import TurnStarted

from ..studio import Studio


async def run_after(studio: Studio, agent: str, request: str, after: Result | None = None, **options: Any) -> Result:
    async with studio.app() as app:
        earlier = after.run_id if after else ""
        return await app.run(studio.agents[agent], request, agents=studio.agents.values(), after=earlier, **options)


def last_conversation(studio: Studio, agent: str) -> list[str]:
    """Return the whole conversation that the agent got in its last call."""
    last = [call for call in studio.calls if call.agent == agent][-1]
    return [message.text for message in last.messages]


async def test_an_agent_knows_what_was_said_in_the_run_before(studio: Studio) -> None:
    studio.agent("poet", says=["a poem", "a shorter poem", "the shortest"])

    first = await run_after(studio, "poet", "write a poem")
    second = await run_after(studio, "poet", "shorter", first)
    third = await run_after(studio, "poet", "shorter still", second)

    assert third.text == "the shortest"
    assert last_conversation(studio, "poet") == ["write a poem", "a poem", "shorter", "a shorter poem", "shorter still"]


async def test_the_steps_of_an_earlier_run_are_recalled_with_it(studio: Studio) -> None:
    def weather(place: str) -> str:
        """The weather."""
        return f"rain in {place}"

    studio.agent("guide", says=[calls("weather", place="Bonn"), "wet", "still wet"], tools=("weather",))
    first = await run_after(studio, "guide", "the weather?", tools=[weather])

    await run_after(studio, "guide", "and now?", first)

    assert last_conversation(studio, "guide") == ["the weather?", "", "rain in Bonn", "wet", "and now?"]


async def test_what_was_stopped_is_recalled_as_unfinished(studio: Studio) -> None:
    studio.agent("poet", says=[{"silent": True}, "a limerick"])
    async with studio.start("poet", "write a poem") as run:
        async for entry in run.entries():
            if isinstance(entry.event, TurnStarted):
                await run.stop()
        stopped = await run.result()

    second = await run_after(studio, "poet", "rather a limerick", stopped)

    assert second.text == "a limerick"
    assert last_conversation(studio, "poet") == ["write a poem", UNFINISHED_MARK, "rather a limerick"]


async def test_the_agent_that_a_request_is_routed_to_knows_the_conversation(studio: Studio) -> None:
    route = [calls("route_to", agent="ops", reason="load"), calls("route_to", agent="law", reason="a contract")]
    studio.agent("desk", says=route, agents=("ops", "law"), router=Router())
    studio.agent("ops", says=["ask the law"])
    studio.agent("law", says=["", "sign it"])

    first = await run_after(studio, "desk", "may we?")
    second = await run_after(studio, "desk", "then ask it", first)

    assert second.text == "sign it"
    assert last_conversation(studio, "law")[:2] == ["may we?", "ask the law"]


async def test_a_resumed_run_has_the_same_earlier_conversation(studio: Studio) -> None:
    studio.agent("poet", says=["a poem", "a shorter poem"])
    first = await run_after(studio, "poet", "write a poem")
    async with studio.app(fault=refuse_after(4)) as app:
        died = await app.run(studio.agents["poet"], "shorter", after=first.run_id)

    studio.expire_leases()
    again = await studio.resume(died.run_id)

    assert died.outcome == "interrupted"
    assert again.text == "a shorter poem"
    assert last_conversation(studio, "poet") == ["write a poem", "a poem", "shorter"]


async def test_a_conversation_cannot_go_on_from_nowhere(studio: Studio) -> None:
    studio.agent("poet")

    async with studio.app() as app:
        with pytest.raises(Mistake, match="cannot continue from run 'nowhere': not found"):
            await app.run(studio.agents["poet"], "hello", after="nowhere")
