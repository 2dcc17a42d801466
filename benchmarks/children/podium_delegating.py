"""Podium delegating to workers, and waiting until they have ended."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from msgspec import structs

from podium import App, Settings
from podium.files.discovery import load_roster
from podium.store.follower import Follower
from podium.values.actor import Actor
from podium.values.event import RunEnded
from podium.values.store_address import StoreAddress
from podium.workers.delegation import NewWorker, create_worker

from ..child import REQUEST, serve

AGENT = "worker"
SILENCE = '```script\n[{"silent": true}]\n```'


async def send(request: dict[str, Any]) -> dict[str, float]:
    """Delegate to a worker on each of the `branches`, one after the other, and wait until all have ended.

    The time starts when the first is `asked` for, or when the last one has been delegated (`hired`). It ends when
    the last one has `called` its model for the first time, or has ended (`over`).
    """
    async with _open_app(request) as app:
        moments = {"asked": time.time()}
        runs = [await _delegate(app, request, branch, REQUEST) for branch in request["branches"]]
        moments["hired"] = time.time()
        async with asyncio.TaskGroup() as group:
            ends = [group.create_task(_wait_for_success(app.settings.store, run)) for run in runs]
    moments["over"] = time.time()
    calls = _read_calls(Path(request["log"]))
    moments["called"] = max(next((at for key, at in calls if run in key), 0.0) for run in runs)
    failed = sum(not end.result() for end in ends) + sum(not any(run in key for key, _ in calls) for run in runs)
    return {"wall": moments[request["until"]] - moments[request["since"]], "failed": failed}


async def queue_silent_workers(request: dict[str, Any]) -> dict[str, float]:
    """Queue tasks for workers whose model never answers."""
    async with _open_app(request) as app:
        for branch in request["branches"]:
            await _delegate(app, request, branch, SILENCE)
    return {}


def _open_app(request: dict[str, Any]) -> App:
    environ = request["environ"]
    return App(Settings.load(environ, repo=Path(request["repo"])), environ=environ)


async def _delegate(app: App, request: dict[str, Any], branch: str, task: str) -> str:
    repo = Path(request["repo"])
    agent, *others = load_roster(repo, app.settings.home).resolve_team(AGENT)
    agent = structs.replace(agent, expects="")  # its model only answers
    new = NewWorker(at=repo, branch=branch, task=task, agent=(agent, *others))
    return await create_worker(app.runs, app.settings, new, by=Actor(name="benchmark", channel="api"))


async def _wait_for_success(store: StoreAddress, run: str) -> bool:
    """Wait until a worker ends, and return whether it succeeded."""
    with Follower(store, run) as entries:
        events = [entry.event async for entry in entries]
    end = events[-1]
    if not isinstance(end, RunEnded) or end.outcome != "succeeded":
        print(f"a worker ended with {end}", file=sys.stderr)
        return False
    return True


def _read_calls(log: Path) -> list[tuple[str, float]]:
    """Return the key of each call, which contains the run's id, and the time of the call."""
    whole, _, _ = log.read_text().rpartition("\n")  # the last line may still be incomplete
    return [(line["key"], line["at"]) for line in map(json.loads, whole.splitlines())]


if __name__ == "__main__":
    serve(send=send, enlist=queue_silent_workers)
