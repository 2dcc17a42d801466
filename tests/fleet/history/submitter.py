"""A process that delegates the runs of a plan: `python -m tests.fleet.history.submitter PLAN REPOSITORY`.

It can be killed and started again at any time: it delegates what has no worker yet.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import msgspec

from podium import App, Settings
from podium.core.placement import WorkerOptions
from podium.store.worker_index import WorkerIndex
from podium.values.errors import PodiumError
from podium.workers.delegation import NewWorker, create_worker

from ...actors import ADA
from ...workers.worker_lab import make_scripted_agent
from .run_plan import HistoryPlan

LABEL = "fleet"
"""A label that all hosts have. A worker with a label waits for a host, even if none is alive at the moment."""


async def submit_runs(plan: HistoryPlan, repo: Path) -> None:
    """Delegate the runs that have no worker yet. Raise PodiumError if the store fails."""
    settings = Settings.load(repo=repo)
    known = {row.name for row in WorkerIndex(settings.store).list_all()}
    async with App(settings, environ=os.environ) as app:
        for run in plan.runs:
            if run.branch not in known:
                new = NewWorker(
                    at=repo,
                    branch=run.branch,
                    task=f"work on {run.branch}",
                    agent=(make_scripted_agent(*run.moves),),
                    options=WorkerOptions(labels=(LABEL,)),
                )
                settings = Settings.load(repo=repo, permissions=run.permissions)
                await create_worker(app.runs, settings, new, by=ADA)


def main() -> None:
    plan = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=HistoryPlan)
    try:
        anyio.run(submit_runs, plan, Path(sys.argv[2]))
    except PodiumError as error:
        sys.exit(f"submitter: {error}")


if __name__ == "__main__":
    main()
