"""Podium with a team that discusses: every message, with its sender and recipients, is on the timeline."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from podium import Agent, App, Settings
from podium.values.agent import Member, Team

from ..child import Clock, serve
from ..discussion_scenario import (
    ANSWER,
    COORDINATOR,
    LEAD,
    LEAD_PROMPT,
    MEMBER,
    MEMBER_PROMPT,
    PROMPTS,
    TOPIC,
    member_names,
)
from ..heap import warm_up_heap


async def discuss(request: dict[str, Any]) -> dict[str, float]:
    """Run one discussion with this number of `members` and `rounds`."""
    taking_part = [
        Agent(name=name, prompt=MEMBER_PROMPT, model=f"openai:{MEMBER}") for name in member_names(request["members"])
    ]
    options = {"max_rounds": request["rounds"], "termination": "max_rounds", "prompts": PROMPTS}
    team = Team(mode="discuss", members=tuple(Member(agent=agent.name) for agent in taking_part), options=options)
    lead = Agent(name=LEAD, prompt=LEAD_PROMPT, model=f"openai:{COORDINATOR}", team=team)
    with TemporaryDirectory() as home:
        settings = Settings.load({}, home=Path(home), model=f"openai:{MEMBER}", base_url=request["url"])
        async with App(settings, environ={}) as app:
            with Clock() as clock:
                result = await app.run(lead, TOPIC, agents=taking_part)
    return clock.as_sample(1, failed=int(not result.succeeded or result.text != ANSWER))


if __name__ == "__main__":
    warm_up_heap()
    serve(discuss=discuss)
