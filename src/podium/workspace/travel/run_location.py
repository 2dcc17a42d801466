"""Locate a run's repository and checkout on this machine.

On the machine where the work was delegated, these are the paths that the run recorded. On any other machine, both are
in the Podium home: `repositories/REMOTE/runs/RUN/repository` and, beside it, the checkout.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from ...system.host_id import read_host_id
from ...values.errors import Mistake
from ...values.worker_task import WorkerTask
from ..git.snapshot_refs import as_ref_name
from .repository_cache import Mirror, RepositoryCache

REPOSITORY_FOLDER = "repository"


def locate_task(worker_task: WorkerTask, run: str, home: Path) -> WorkerTask:
    """Return the task with its paths replaced by paths on this machine, which do not have to exist yet.

    A task that has no remote or comes from this machine is returned unchanged. So is a task whose remote cannot be
    used; the error is raised later, when its code is fetched.
    """
    origin = worker_task.origin
    try:
        if origin is None or not origin.remote or origin.host == read_host_id(home):
            return worker_task
        mirror = RepositoryCache(home=home).open_mirror(origin.remote)
    except Mistake:
        return worker_task
    name = mirror.remote.name
    checkout = name if name != REPOSITORY_FOLDER else f"{name}-checkout"
    folder = run_folder(mirror, run)
    return structs.replace(worker_task, root=str(folder / REPOSITORY_FOLDER), path=str(folder / checkout))


def run_folder(mirror: Mirror, run: str) -> Path:
    """Return the folder for the repository and the checkout of a run that came from another machine."""
    return mirror.folder / "runs" / as_ref_name(run)
