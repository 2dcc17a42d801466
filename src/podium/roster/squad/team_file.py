"""`team.md`: who is on the team, and how it works."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast

from msgspec import Struct

from ...values.agent import MODE_ALIASES, Mode
from ..team_keys import MODES
from .squad_markdown import (
    Row,
    Table,
    get_cell,
    iter_content_lines,
    normalise_heading,
    parse_heading,
    parse_tables,
    split_lines,
    strip_markup,
)
from .squad_team import Member

DEFAULT_MODE: Mode = "reflect"
MODE_LINE = re.compile(r"(\s*(?:[-*+]\s+)?[*_]*mode[*_]*\s*:[*_`\s]*)([\w-]+)", re.IGNORECASE)
_OTHER_SECTIONS = ("coordinator", "coding agent", "issue source", "project context")


class TeamFile(Struct, frozen=True):
    """What `team.md` says: everyone on the roster, workers or not, as they are listed."""

    name: str
    mode: Mode
    members: tuple[Member, ...]


def parse_team(text: str) -> TeamFile:
    """The team in the text of a `team.md`."""
    lines = split_lines(text)
    members = tuple(read_member(row, table) for table in find_member_tables(lines) for row in list_member_rows(table))
    title = find_title_line(lines)
    name = "" if title is None else parse_title(lines[title])
    return TeamFile(name, find_mode(lines), members)


def parse_title(line: str) -> str:
    """The name that a first heading gives."""
    found = parse_heading(line)
    return found.text if found else ""


def find_title_line(lines: Sequence[str]) -> int | None:
    """Where the first heading of the first level is."""
    return next(
        (place for place, line in iter_content_lines(lines) if (one := parse_heading(line)) and one.level == 1), None
    )


def find_mode_lines(lines: Sequence[str]) -> list[tuple[int, str]]:
    """The lines that give a mode, with the word that each gives."""
    found = [(place, MODE_LINE.match(line)) for place, line in iter_content_lines(lines)]
    return [(place, match[2]) for place, match in found if match]


def find_mode(lines: Sequence[str]) -> Mode:
    """The mode that the first line gives that gives one we know."""
    return next((known for _, word in find_mode_lines(lines) if (known := parse_mode(word))), DEFAULT_MODE)


def parse_mode(word: str) -> Mode | None:
    """The mode of that name, ours or another system's."""
    name = word.strip("-_").lower()
    name = MODE_ALIASES.get(name, name)
    return cast(Mode, name) if name in MODES else None


def find_member_tables(lines: Sequence[str]) -> list[Table]:
    """The tables that list members: under `Members`, else under `Team Roster`, else those of a Member and a Role."""
    found = [table for table in parse_tables(lines) if not table.is_under(*_OTHER_SECTIONS)]
    kinds = [
        [table for table in found if table.is_under("members")],
        [table for table in found if table.is_under("team roster")],
        [
            table
            for table in found
            if table.header and _normalise_cells(table.header) in (["member", "role"], ["name", "role"])
        ],
    ]
    listed = next((kind for kind in kinds if any(map(list_member_rows, kind))), None)
    return listed if listed is not None else next((kind for kind in kinds if kind), [])


def _normalise_cells(row: Row) -> list[str]:
    return [normalise_heading(cell) for cell in row.cells]


def find_name_column(table: Table) -> int:
    """Where names stand."""
    return table.find_column("name", "member", "agent") or 0


def find_role_column(table: Table) -> int | None:
    """Where roles stand."""
    return table.find_column("role") if table.header else 1


def find_status_column(table: Table) -> int | None:
    """Where statuses stand."""
    return table.find_column("status") if table.header else 3


def list_member_rows(table: Table) -> list[Row]:
    """The rows that name somebody."""
    return [row for row in table.rows if read_member_name(row, table)]


def read_member_name(row: Row, table: Table) -> str:
    """Whom a row names."""
    name = strip_markup(get_cell(row.cells, find_name_column(table)))
    return name if re.search(r"\w", name) else ""


def read_member(row: Row, table: Table) -> Member:
    """The member of a row; what a charter adds is not known here."""
    role, status = (get_cell(row.cells, column(table)) for column in (find_role_column, find_status_column))
    return Member(read_member_name(row, table), role, status=status)
