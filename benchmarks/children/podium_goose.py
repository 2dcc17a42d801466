"""Podium with goose as its agent: in the sandbox, permission by a rule, everything on the timeline."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import structs

from podium import Agent, App, Settings
from podium.values.agent import Permissions

from ..agent_scenario import (
    REQUEST,
    Ask,
    find_goose,
    make_memory_job,
    make_permission_job,
    make_start_job,
)
from ..child import MODEL, serve


@asynccontextmanager
async def open_goose(url: str, folder: Path) -> AsyncIterator[Ask]:
    settings = Settings.load({}, home=folder / "home", model=f"openai:{MODEL}", base_url=url)
    settings = structs.replace(settings, permissions=Permissions(allow=("Edit",)))
    path = os.pathsep.join((str(Path(find_goose()).parent), os.environ["PATH"]))
    environ = {"PATH": path, "HOME": str(folder), "OPENAI_API_KEY": "none", "OPENAI_BASE_URL": url}
    agent = Agent(name="coder", engine="goose", model=f"openai:{MODEL}")
    async with App(settings, environ=environ) as app:

        async def ask() -> None:
            result = await app.run(agent, REQUEST, repo=folder / "repo")
            if not result.succeeded:
                raise RuntimeError(f"{result.outcome}: {result.error}")

        yield ask


if __name__ == "__main__":
    serve(
        start=make_start_job(open_goose), permission=make_permission_job(open_goose), memory=make_memory_job(open_goose)
    )
