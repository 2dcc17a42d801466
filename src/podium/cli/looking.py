"""Looking into the store from a command: opened where there is one, and never made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import NoSuchRun
from ..store.reader import Reader

NO_RUNS = 'no runs yet; podium run AGENT "request" begins one'


@contextmanager
def looking(store: Path) -> Iterator[Reader]:
    """The store, to be read; raises NoSuchRun where there is none yet."""
    if not store.exists():
        raise NoSuchRun(NO_RUNS)
    with Reader(store) as reader:
        yield reader


def found(store: Path, prefix: str) -> str:
    """The id of the one run that begins so."""
    with looking(store) as reader:
        return reader.find(prefix)
