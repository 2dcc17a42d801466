"""Tell which folders a client of the server may name: the repositories that the person already works in with Podium.

Naming a folder makes Podium read files there and start agents there. A client that only starts and steers work names
repositories in which the person has let Podium work before, and no others.
"""

from __future__ import annotations

import os
from pathlib import Path

from ...store.reader import StoreReader
from ...store.run_creators import list_person_runs
from ...system.locations import find_repo
from ...values.store_address import StoreAddress

LONGEST_PATH = 4096


class KnownRepositories:
    """The folder `own` and the repositories in which the runs of a store work.

    The hosts of a fleet write to a PostgreSQL store too, so only the runs that this process's login created count.
    """

    def __init__(self, store: StoreAddress, own: Path) -> None:
        self._store = store
        self._folders = {os.path.realpath(own)}
        self._runs: set[str] = set()
        """The runs whose folders are in `_folders`. The folders of a run never change."""

    def find(self, folder: str) -> Path | None:
        """Return the repository that contains a folder if it is known, or None.

        The result is None for a path that is not absolute and for a folder that does not exist, too, so that a client
        learns nothing about other folders. A repository inside a known one must be known itself.
        """
        if not Path(folder).is_absolute() or not is_folder(folder):
            return None
        repo = find_repo(Path(os.path.realpath(folder)))
        if str(repo) not in self._folders:
            self._read_new_runs()
        return repo if str(repo) in self._folders else None

    def _read_new_runs(self) -> None:
        if not self._store.exists():
            return
        new = [run for run in list_person_runs(self._store) if run not in self._runs]
        if not new:
            return
        with StoreReader(self._store) as reader:
            found = {summary.id: summary for summary in reader.read_run_list().readable}
        for run in new:
            if run in found:
                self._folders.update(os.path.realpath(one.root) for one in found[run].started.checkouts)
                self._runs.add(run)


def is_folder(path: str) -> bool:
    """Return whether a path that a client sent is a folder that this process can see."""
    try:
        return len(path) <= LONGEST_PATH and Path(path).is_dir()
    except (OSError, ValueError):
        return False


def describe_unknown_repository(folder: str) -> str:
    """Return the sentence for a client that named a folder which is not in a known repository."""
    return (
        f"{folder[:200]!r} is not in a repository of the server or of an earlier run; start a run there on the "
        "server's machine first, or use a token with the scope approve"
    )
