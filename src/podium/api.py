"""Run an agent with a single call, which opens and closes an `App`. For many runs, open an `App` once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Unpack

from .app import App, RunOptions
from .files.settings import Settings
from .runs.run_handle import Run
from .system.locations import find_repo
from .values.agent import Agent
from .values.request import Result


async def run(
    agent: str | Agent, request: str, *, settings: Settings | None = None, by: str = "", **options: Unpack[RunOptions]
) -> Result:
    """Send a request to an agent and wait for the result.

    `agent` is an Agent, or the name of an agent that is defined in the repository, in the user's home directory or in
    Podium itself. `agents` contains other agents, built in code, that `agent` refers to. If `repo` is given, agents can
    work on its files, subject to the permission rules. `tools` contains functions that agents can call. `budget` limits
    the whole run. `by` is the name of who starts the run, by default the user of this process.
    """
    async with App(settings or _load_settings(options)) as app:
        return await app.run(agent, request, by=by, **options)


@asynccontextmanager
async def start(
    agent: str | Agent, request: str, *, settings: Settings | None = None, by: str = "", **options: Unpack[RunOptions]
) -> AsyncIterator[Run]:
    """Send a request to an agent and yield the run. Exiting the block before the run has ended stops the run.

    If `is_attended`, an agent's requests wait until you respond with the run's `answer` or `reply`. `by` is the name of
    who starts the run, by default the user of this process.
    """
    async with (
        App(settings or _load_settings(options)) as app,
        app.start(agent, request, by=by, **options) as started,
    ):
        yield started


def _load_settings(options: RunOptions) -> Settings:
    repo = options.get("repo")
    return Settings.load(repo=None if repo is None else find_repo(Path(repo)))
