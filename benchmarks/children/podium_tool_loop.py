"""Podium with a function as a tool: every call passes the gate and is recorded before and after it is made."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from podium import Agent, App, Settings
from podium.tools.python_function import repeatable

from ..child import MODEL, Call, make_calls_job, serve
from ..heap import warm_up_heap
from ..tool_loop_scenario import PROMPT, REQUEST, depth


@asynccontextmanager
async def open_caller(url: str) -> AsyncIterator[Call]:
    # The tool is listed explicitly so that it is the only one offered, as in the other programs.
    agent = Agent(name="pilot", prompt=PROMPT, tools=("depth",))
    with TemporaryDirectory() as home:
        settings = Settings.load({}, home=Path(home), model=f"openai:{MODEL}", base_url=url)
        async with App(settings, environ={}) as app:

            async def call() -> str:
                result = await app.run(agent, REQUEST, tools=[repeatable(depth)])
                return result.text if result.succeeded else f"{result.outcome}: {result.error}"

            yield call


if __name__ == "__main__":
    warm_up_heap()
    serve(calls=make_calls_job(open_caller))
