"""Podium in one call: open it, use it, close it. For many runs, open an `App` once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from .agent import Agent
from .app import App
from .live import Run
from .result import Result
from .settings import Settings


async def run(
    agent: str | Agent,
    request: str,
    *,
    repo: str | Path | None = None,
    settings: Settings | None = None,
    agents: Iterable[Agent] = (),
) -> Result:
    """Give a request to an agent and wait for what comes of it.

    `agent` is a name that the repository, the user or Podium itself has a file for, or an Agent;
    `agents` are those built in code that it refers to.
    """
    async with App(settings) as app:
        return await app.run(agent, request, repo=repo, agents=agents)


@asynccontextmanager
async def start(
    agent: str | Agent,
    request: str,
    *,
    repo: str | Path | None = None,
    settings: Settings | None = None,
    agents: Iterable[Agent] = (),
) -> AsyncIterator[Run]:
    """Give a request to an agent and watch what comes of it; leaving the block early stops the run."""
    async with App(settings) as app, app.start(agent, request, repo=repo, agents=agents) as started:
        yield started
