"""Queue a run that the commander starts in the repository itself, in a separate process."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from ..runs.run_launcher import RunLauncher
from ..runs.run_options import RunOptions
from ..setup.settings import Settings
from ..values.actor import Actor
from ..values.agent import Agent
from ..values.worker_task import WorkerTask
from .delegate import enqueue_worker_run, start_commander
from .provider_keys import announce_keys


async def enqueue_background_run(
    launcher: RunLauncher,
    settings: Settings,
    agent: str | Agent,
    request: str,
    *,
    place: Path,
    by: Actor,
    is_unattended: bool = False,
    endpoint: str = "",
    run: str = "",
    **run_options: Unpack[RunOptions],
) -> str:
    """Queue a run in the folder `place`, make sure that a commander is running, and return the id of the run.

    `by` is who starts the run. `endpoint` is where a client of the server asked for it, such as `a2a/lead`. `run` is an
    id chosen in advance; if that run exists, it is not queued again.
    """
    worker_task = WorkerTask(
        root=str(place),
        path=str(place),
        is_here=True,
        is_unattended=is_unattended,
        endpoint=endpoint,
        max_restarts=settings.max_restarts,
    )
    with announce_keys(settings.store, run) as delivery:
        run_options["repo"] = place
        queued = await enqueue_worker_run(
            launcher, agent, request, worker_task, by=by, run=delivery.run, settings=settings, **run_options
        )
        start_commander(settings, delivery=delivery)
    return queued
