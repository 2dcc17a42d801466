"""Find the runs of a conversation, in which each run continues the one before it."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from ..runs.queries.run_lookup import open_reader
from ..store.reader import RunSummary
from ..values.errors import NoSuchRun
from ..values.store_address import StoreAddress
from ..views.run_report import Report


def find_conversation(
    store: StoreAddress, first: str, is_included: Callable[[RunSummary], bool] = lambda _: True
) -> list[Report]:
    """Return the runs of a conversation, oldest first, given the id of its first run.

    Runs for which `is_included` returns False count as missing. Raise NoSuchRun if there is no such run.
    """
    with open_reader(store) as reader:
        summaries = {one.id: one for one in reader.read_run_list().readable if is_included(one)}
        following: dict[str, RunSummary] = {}
        for summary in sorted(summaries.values(), key=lambda one: one.first.at):
            if summary.started.after:
                following[summary.started.after] = summary
        if first not in summaries:
            raise NoSuchRun(f"run {first!r} not found")
        chain: list[Report] = []
        found: RunSummary | None = summaries[first]
        while found is not None:
            report = Report.from_entries(reader.read_entries(found.id))
            chain.append(structs.replace(report, state=found.phase))
            found = following.get(found.id)
    return chain


def find_first_run(store: StoreAddress, run: str) -> str:
    """Return the id of the first run of the conversation that a run belongs to."""
    with open_reader(store) as reader:
        while after := reader.read_summary(run).started.after:
            run = after
    return run
