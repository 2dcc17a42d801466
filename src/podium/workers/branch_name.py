"""Choose a name for the branch of a worker that continues the work on another branch."""

from __future__ import annotations

import re
from itertools import count

from anyio import to_thread

from ..store.worker_index import WorkerIndex
from ..workspace.git.branch import list_branches
from ..workspace.git.repository import Repository


async def choose_branch_name(repository: Repository, worker_index: WorkerIndex, branch: str, suffix: str) -> str:
    """Return `branch` with the suffix, and with a number if an existing branch or worker has that name.

    A branch that already has the suffix gets the next number.
    """
    stem = re.sub(rf"{suffix}(-\d+)?$", "", branch) + suffix
    there = set(await list_branches(repository))
    root = str(repository.main_folder)

    def find_free_name() -> str:
        names = (stem if number == 1 else f"{stem}-{number}" for number in count(1))
        return next(name for name in names if name not in there and not worker_index.find_by_name(root, name))

    return await to_thread.run_sync(find_free_name)
