"""Lists are made of columns, which the terminal and the JSON output show alike."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec import UNSET

from podium.cli.commands.approvals import REQUEST_COLUMNS
from podium.cli.commands.hosts import HOST_COLUMNS
from podium.cli.commands.schedule import SCHEDULE_COLUMNS
from podium.cli.output.table import format_table
from podium.runs.queries.run_listing import GROUP_COLUMNS, RUN_COLUMNS
from podium.values.column import Column, encode_row, list_page_columns
from podium.views.decision_listing import DECISION_COLUMNS
from podium.workers.queries.worker_listing import WORKER_COLUMNS
from podium.workers.queries.worktree_listing import WORKTREE_COLUMNS

from .conftest import Desk

LISTS: dict[str, tuple[Column[Any], ...]] = {
    "runs": RUN_COLUMNS,
    "groups": GROUP_COLUMNS,
    "workers": WORKER_COLUMNS,
    "worktrees": WORKTREE_COLUMNS,
    "schedules": SCHEDULE_COLUMNS,
    "hosts": HOST_COLUMNS,
    "decisions": DECISION_COLUMNS,
    "requests": REQUEST_COLUMNS,
}
TOTALS = {"waiting", "workers", "usage"}
"""Columns of runs that need more than the store's list of runs, so that only the API has them."""


@dataclass(frozen=True, kw_only=True)
class Boat:
    name: str
    length: int | None = None
    task: str = ""


BOATS: tuple[Column[Boat], ...] = (
    Column("name", "Name", lambda boat: boat.name),
    Column("length", "Length", lambda boat: boat.length, "number", spare=1),
    Column("task", "Task", lambda boat: boat.task or UNSET, fills=True),
)


def list_headings(columns: tuple[Column[Any], ...]) -> list[str]:
    """Return the headings in the terminal; the column that fills the line comes last."""
    shown = sorted((one for one in columns if one.is_in_terminal), key=lambda one: one.fills)
    return [one.heading.upper() for one in shown]


@pytest.mark.parametrize("name", LISTS)
def test_every_column_has_a_heading_and_a_name_of_its_own(name: str) -> None:
    columns = LISTS[name]

    assert all(column.heading for column in columns)
    assert len({column.name for column in columns}) == len(columns)
    assert len({column.heading for column in columns}) == len(columns)
    assert sum(column.fills for column in columns) <= 1


def test_a_table_has_a_column_for_each_of_the_list_and_cuts_the_one_that_fills_the_line() -> None:
    boats = [Boat(name="Ada", length=1200, task="Carry the mail to the island"), Boat(name="Bo")]

    lines = format_table(boats, BOATS, now=0, most=32)

    assert lines == [
        "NAME  LENGTH  TASK",
        "Ada   1,200   Carry the mail to…",
        "Bo    -       -",
    ]


def test_a_narrow_terminal_drops_the_columns_that_can_be_spared() -> None:
    lines = format_table([Boat(name="Ada", length=7, task="Carry")], BOATS, now=0, most=20)

    assert lines == ["NAME  TASK", "Ada   Carry"]


def test_a_value_with_hidden_characters_or_line_breaks_stays_on_its_line_and_does_not_act() -> None:
    boats = [Boat(name="A\x1b[31md\u202ea\nRUN  forged", task="one\ntwo\x07")]

    lines = format_table(boats, BOATS, now=0, most=200)

    assert lines[1] == r"A\x1b[31md\u202ea\nRUN  forged  -       one two\x07"
    assert encode_row(boats[0], BOATS)["task"] == "one\ntwo\x07"


def test_a_value_that_a_row_does_not_have_is_left_out_of_its_json() -> None:
    assert encode_row(Boat(name="Bo"), BOATS) == {"name": "Bo", "length": None}


def test_the_page_gets_the_names_headings_and_kinds_of_the_columns_that_it_shows() -> None:
    shown = [(one.name, one.heading, one.kind) for one in list_page_columns(RUN_COLUMNS)]

    assert shown == [
        ("id", "Run", "text"),
        ("state", "State", "text"),
        ("started_at", "Started", "age"),
        ("seconds", "Took", "duration"),
        ("usage", "Cost", "usage"),
    ]


def test_the_lists_of_runs_and_groups_show_their_columns_as_text_and_in_json(desk: Desk) -> None:
    desk.write_agent("lead", "the answer")
    desk.invoke("run", "lead", "do it")

    runs, groups = desk.invoke("ps").stdout.splitlines(), desk.invoke("group", "list").stdout.splitlines()
    ps = json.loads(desk.invoke("ps", "--json").stdout)
    [group, _] = json.loads(desk.invoke("group", "list", "--json").stdout)["groups"]

    assert runs[0].split() == list_headings(RUN_COLUMNS)
    assert list(ps["runs"][0]) == [column.name for column in RUN_COLUMNS if column.name not in TOTALS]
    assert groups[0].split() == list_headings(GROUP_COLUMNS)
    assert list(group) == [column.name for column in GROUP_COLUMNS if column.name not in ("count", "listed")]
