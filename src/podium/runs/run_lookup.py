"""Looking into the store from a command: opened where there is one, and never made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..store.sqlite.reader import StoreReader
from ..system.locations import find_repo
from ..values.errors import Mistake, NoSuchRun

NO_RUNS = 'no runs yet; podium run AGENT "request" begins one'


@contextmanager
def open_reader(store: Path) -> Iterator[StoreReader]:
    """The store, to be read; raises NoSuchRun where there is none yet."""
    if not store.exists():
        raise NoSuchRun(NO_RUNS)
    with StoreReader(store) as reader:
        yield reader


def find_run_id(store: Path, name: str) -> str:
    """The id of the run that is meant: that of the newest worker of this name here, or the one that begins so."""
    with open_reader(store) as reader:
        # A whole name comes before the beginning of an id, as it does where workers alone are meant.
        return find_worker_run(store, name) or reader.find_run(name)


def find_worker_run(store: Path, name: str) -> str:
    """The newest worker of a branch or a name in this repository; empty where there is none."""
    from ..store.sqlite.worker_index import WorkerIndex  # here, because most commands look for no worker
    from ..workspace.git.repository import Repository

    try:
        root = Repository.at(find_repo(Path())).main_folder
    except Mistake:
        return ""  # in no repository, where nobody has a branch
    known = WorkerIndex(store).find_by_name(str(root), name) if name else []
    return known[-1].run if known else ""
