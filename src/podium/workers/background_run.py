"""Queue a run that the commander starts in the repository itself, in a separate process."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ..files.settings import Settings
from ..runs.run_options import RunOptions
from ..runs.runs import Runs
from ..values.actor import Actor, act
from ..values.agent import Agent
from ..values.worker_task import WorkerTask
from .delegation import enqueue_worker_run, start_commander
from .fleet_jobs import HERE, WorkerPlace
from .provider_keys import announce_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundRun:
    """A request to an agent in the folder `place`.

    `endpoint` is where a client of the server asked for it, such as `a2a/lead`.
    """

    agent: str | Agent
    request: str
    place: Path
    options: RunOptions = field(default_factory=RunOptions)
    is_unattended: bool = False
    endpoint: str = ""


@act("act")
async def enqueue_background_run(
    runs: Runs, settings: Settings, new: BackgroundRun, *, by: Actor, run: str = ""
) -> str:
    """Queue a run, make sure that a commander is running, and return the id of the run.

    `run` is an id chosen in advance; if that run exists, it is not queued again.
    """
    with announce_keys(settings.store, run) as delivery:
        queued = await write_background_run(runs, settings, new, by=by, run=delivery.run)
        start_commander(settings, delivery=delivery)
    return queued


async def write_background_run(
    runs: Runs, settings: Settings, new: BackgroundRun, *, by: Actor, run: str, place: WorkerPlace = HERE
) -> str:
    """Write a run to the store, for the commander or the host that `place` names, and return its id."""
    worker_task = WorkerTask(
        root=str(new.place),
        path=str(new.place),
        is_here=True,
        is_unattended=new.is_unattended,
        endpoint=new.endpoint,
        max_restarts=settings.max_restarts,
    )
    options: RunOptions = {**new.options, "repo": new.place}
    return await enqueue_worker_run(
        runs, settings, new.agent, new.request, worker_task, options, by=by, run=run, place=place
    )
