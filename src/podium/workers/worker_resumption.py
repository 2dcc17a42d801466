"""Resume workers that were interrupted or paused. A commander, which is started if necessary, runs them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable

from ..core.timeline import Timeline
from ..files.settings import Settings
from ..runs.assembly.preflight import require_not_ended
from ..store.run_store import RunStore
from ..store.wakeup import send_wakeup
from ..values.actor import Actor, act
from ..values.errors import Mistake
from ..values.event import RunResumed, decode_entry
from ..values.phase import IDLE_PHASES
from ..values.store_address import StoreAddress
from ..views.worker_state import WorkerState
from .delegation import start_commander
from .fleet_jobs import find_missing_jobs


@act("act")
async def resume_workers(
    settings: Settings, workers: Iterable[WorkerState], *, by: Actor, wakes_early: bool = True
) -> list[WorkerState]:
    """Start a commander to resume workers, including paused ones. Raise Mistake if a worker has ended or is active.

    Workers that are waiting for a provider's limit to reset continue when it resets or, with `wakes_early`, now.
    """
    selected = list(workers)
    for worker in selected:
        if worker.is_over:
            raise Mistake(f"{worker.name} has ended ({worker.state}); start another worker with podium delegate")
        if worker.phase not in IDLE_PHASES:
            how = f"to follow it, run podium workers logs {worker.name} -f"
            raise Mistake(f"{worker.name} is active ({worker.state}); {how}")
    phases = {"paused", "waiting"} if wakes_early else {"paused"}
    if paused := [worker.run for worker in selected if worker.phase in phases]:
        await mark_runs_resumed(settings.store, paused, by=by)
    if selected:
        await find_missing_jobs(settings.store, queues=True)
        send_wakeup(settings.store, "owner")  # wake a commander that is already running
        start_commander(settings)
    return selected


async def mark_runs_resumed(store: StoreAddress, runs: list[str], *, by: Actor) -> None:
    """Record that paused runs are resumed, so that a commander can continue them. Raise RunOver if one has ended."""
    async with RunStore(store) as opened:
        for run in runs:
            lease = await opened.claim_run(run)
            try:
                rows = await opened.read_rows(run)
                require_not_ended(run, decode_entry(rows[-1].line))  # the run may have been cancelled meanwhile
                timeline = Timeline(run, lease)
                timeline.load(rows)
                timeline.append(RunResumed(host=socket.gethostname(), pid=os.getpid()).with_actor(by), scope="")
            finally:
                opened.release_run(lease)
            await timeline.wait_written()
