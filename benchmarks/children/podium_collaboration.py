"""Podium with a collaborating team: plan, steps and reviews are on the timeline."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from podium import Agent, App, Settings
from podium.values.agent import Member, Team

from ..child import Clock, serve
from ..collaboration_scenario import GOAL, LEAD, OWNER, REPORT, REVIEWER
from ..heap import warm_up_heap


async def collaborate(request: dict[str, Any]) -> dict[str, float]:
    """Have a team carry out this number of `steps`."""
    members = [Agent(name=name, model=f"openai:{name}") for name in (OWNER, REVIEWER)]
    listed = (Member(agent=OWNER), Member(agent=REVIEWER, role="reviewer"))
    lead = Agent(name=LEAD, model=f"openai:{LEAD}", team=Team(mode="collaborate", members=listed))
    with TemporaryDirectory() as home:
        settings = Settings.load({}, home=Path(home), model=f"openai:{LEAD}", base_url=request["url"])
        async with App(settings, environ={}) as app:
            with Clock() as clock:
                result = await app.run(lead, GOAL.format(steps=request["steps"]), agents=members)
    return clock.as_sample(1, failed=int(not result.succeeded or result.text != REPORT))


if __name__ == "__main__":
    warm_up_heap()
    serve(collaborate=collaborate)
