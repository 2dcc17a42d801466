"""List runs by group with filters, a page at a time, and return the answer of the API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import Struct, field

from ...store.group_rows import Groups
from ...store.reader import RunSummary, StoreReader
from ...values.column import PageColumn, encode_rows, list_page_columns
from ...values.event import SCHEMA
from ...values.store_address import StoreAddress
from ...values.usage import sum_usage
from ...views.run_groups import Arrangement, build_sections
from .cost_overview import CostHistoryReader
from .run_listing import GROUP_COLUMNS, RUN_COLUMNS, GroupObject, GroupRow, RunObject, RunPlace, RunTotals, make_run_row


class RunFilter(Struct, frozen=True, kw_only=True):
    """Which runs to list. An empty field does not restrict the list.

    Each word of `text` must occur in the id, the agent, the request, the folder or the name. `since` is the earliest
    start time. If `needs_person` is true, only runs with open requests are listed. Archived runs are listed only if
    `has_archived` is true.
    """

    state: str = ""
    text: str = ""
    group: str = ""
    agent: str = ""
    since: float = 0.0
    needs_person: bool = False
    has_archived: bool = False


class RunTable(Struct, frozen=True, kw_only=True):
    """A page of runs with the columns to draw, and the groups in the order of `podium ps`.

    `agents` names the agents of all runs, `total` is the number of runs that match, and `archived` is the number of
    archived runs that are not listed.
    """

    schema: int = SCHEMA
    columns: list[PageColumn] = field(default_factory=partial(list_page_columns, RUN_COLUMNS))
    runs: list[RunObject] = []
    groups: list[GroupObject] = []
    agents: list[str] = []
    total: int = 0
    archived: int = 0


class RunTableReader(NamedTuple):
    """Reads the list of runs in a store."""

    store: StoreAddress
    costs: CostHistoryReader

    def read(
        self, wanted: RunFilter, waiting: Mapping[str, int], *, now: float, first: int = 0, most: int = 200
    ) -> RunTable:
        """Return a page of runs, and the groups in the order of `podium ps`. Pinned runs come first, then the newest.

        `waiting` maps the id of each run to the number of its open requests.
        """
        if not self.store.exists():
            return RunTable()
        with StoreReader(self.store) as reader, Groups(self.store) as groups:
            # Read the runs before the groups, so that the groups cover every run that was read.
            summaries = reader.read_run_list().readable
            arrangement = groups.load_arrangement()
            listed = [one for one in summaries if arrangement.group_of(one.id) is not None]
            shown = [one for one in listed if wanted.has_archived or not arrangement.is_archived(one.id)]
            found = [one for one in shown if _matches(one, wanted, arrangement, waiting)]
            found.sort(key=lambda one: not arrangement.grouped_runs[one.id].is_pinned)
            page = found[first : first + most]
            rows = [
                make_run_row(
                    one,
                    now=now,
                    place=RunPlace.find(one.id, arrangement),
                    totals=self._read_totals(reader, one, waiting.get(one.id, 0), now=now),
                )
                for one in page
            ]
        sections = _list_sections(found, page, arrangement, has_archived=wanted.has_archived)
        return RunTable(
            runs=encode_rows(rows, RUN_COLUMNS),
            groups=encode_rows(sections, GROUP_COLUMNS),
            agents=sorted({one.started.agent for one in shown}),
            total=len(found),
            archived=len(listed) - len(shown),
        )

    def _read_totals(self, reader: StoreReader, summary: RunSummary, waiting: int, *, now: float) -> RunTotals:
        history = self.costs.read(reader, summary, now=now)
        usage = sum_usage(one.usage for one in history.points)
        return RunTotals(waiting=waiting, workers=len(history.worker_runs), usage=usage)


def _matches(summary: RunSummary, wanted: RunFilter, arrangement: Arrangement, waiting: Mapping[str, int]) -> bool:
    started, group = summary.started, arrangement.group_of(summary.id)
    name = arrangement.grouped_runs[summary.id].name
    text = f"{summary.id} {started.agent} {started.request.text} {started.repo} {name}".casefold()
    return (
        (not wanted.state or summary.phase == wanted.state)
        and (not wanted.group or (group is not None and group.tag == wanted.group))
        and (not wanted.agent or started.agent == wanted.agent)
        and summary.first.at >= wanted.since
        and (not wanted.needs_person or summary.id in waiting)
        and all(word in text for word in wanted.text.casefold().split())
    )


def _list_sections(
    found: Sequence[RunSummary], page: Sequence[RunSummary], arrangement: Arrangement, *, has_archived: bool
) -> list[GroupRow]:
    """Return the groups in display order, each with the ids of its runs on this page and its number of matches."""
    counts = Counter(group.tag for one in found if (group := arrangement.group_of(one.id)) is not None)
    return [
        GroupRow(group=group, count=counts[group.tag], listed=runs)
        for group, runs in build_sections((one.id for one in page), arrangement)
        if has_archived or not group.is_archived
    ]
