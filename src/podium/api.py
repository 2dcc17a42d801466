"""Podium in one call: open it, use it, close it. For many runs, open an `App` once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Unpack

from .app import App, RunOptions
from .runs.run_handle import Run
from .setup.settings import Settings
from .system.locations import find_repo
from .values.agent import Agent
from .values.result import Result


async def run(
    agent: str | Agent, request: str, *, settings: Settings | None = None, **options: Unpack[RunOptions]
) -> Result:
    """Give a request to an agent and wait for what comes of it.

    `agent` is a name that the repository, the user or Podium itself has a file for, or an Agent;
    `agents` are those built in code that it refers to. With a `repo` its agents work on the files
    there, as far as rules allow; `tools` are functions that they may call; `budget` limits all of it.
    """
    async with App(settings or _load_settings(options)) as app:
        return await app.run(agent, request, **options)


@asynccontextmanager
async def start(
    agent: str | Agent, request: str, *, settings: Settings | None = None, **options: Unpack[RunOptions]
) -> AsyncIterator[Run]:
    """Give a request to an agent and watch what comes of it; leaving the block early stops the run.

    With `is_attended`, what agents ask is waited for: answer it with the run's `answer` and `reply`.
    """
    async with App(settings or _load_settings(options)) as app, app.start(agent, request, **options) as started:
        yield started


def _load_settings(options: RunOptions) -> Settings:
    repo = options.get("repo")
    return Settings.load(repo=None if repo is None else find_repo(Path(repo)))
