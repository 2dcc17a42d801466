"""Podium as a program uses it: each call is a separate run, durably on the timeline before it is answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from podium import Agent, App, Settings

from ..child import MODEL, PROMPT, REQUEST, Call, make_calls_job, make_memory_job, serve


@asynccontextmanager
async def open_caller(url: str) -> AsyncIterator[Call]:
    agent = Agent(name="poet", prompt=PROMPT)
    with TemporaryDirectory() as home:
        settings = Settings.load({}, home=Path(home), model=f"openai:{MODEL}", base_url=url)
        async with App(settings, environ={}) as app:

            async def call() -> str:
                result = await app.run(agent, REQUEST)
                return result.text if result.succeeded else f"{result.outcome}: {result.error}"

            yield call


if __name__ == "__main__":
    serve(calls=make_calls_job(open_caller), memory=make_memory_job(open_caller))
