"""Read a run's timeline from its store, also while another process writes it."""

from __future__ import annotations

from typing import TypeVar

from ..store.reader import StoreReader
from ..values.event import Entry, Event
from ..values.request import Result
from ..values.store_address import StoreAddress

E = TypeVar("E", bound=Event)


def read_entries(store: StoreAddress, run: str | Result) -> list[Entry]:
    """Return the timeline of a run, given by its id or its result. `store` is the store's path or database."""
    with StoreReader(store) as reader:
        return reader.read_entries(get_run_id(run))


def read_events(store: StoreAddress, run: str | Result, *kinds: type[E]) -> list[E]:
    """Return the events of these classes on the timeline of a run."""
    return [entry.event for entry in read_entries(store, run) if isinstance(entry.event, kinds)]


def get_run_id(run: str | Result) -> str:
    """Return the id of a run."""
    return run if isinstance(run, str) else run.run_id
