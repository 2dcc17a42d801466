"""Podium with a team that orchestrates: the plan, each worker's result and the answer are on the timeline."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from podium import Agent, App, Settings
from podium.values.agent import Member, Team

from ..child import MODEL, Call, make_calls_job, serve
from ..heap import warm_up_heap
from ..team_scenario import LEAD, PROMPTS, REQUEST, WORKERS, worker_prompt


@asynccontextmanager
async def open_caller(url: str) -> AsyncIterator[Call]:
    workers = [Agent(name=name, description=what, prompt=worker_prompt(name)) for name, what in WORKERS.items()]
    members = tuple(Member(agent=name) for name in WORKERS)
    team = Team(mode="orchestrate", members=members, options={"prompts": PROMPTS})
    lead = Agent(name="captain", prompt=LEAD, team=team)
    with TemporaryDirectory() as home:
        settings = Settings.load({}, home=Path(home), model=f"openai:{MODEL}", base_url=url)
        async with App(settings, environ={}) as app:

            async def call() -> str:
                result = await app.run(lead, REQUEST, agents=workers)
                return result.text if result.succeeded else f"{result.outcome}: {result.error}"

            yield call


if __name__ == "__main__":
    warm_up_heap()
    serve(calls=make_calls_job(open_caller))
