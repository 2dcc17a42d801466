"""Parse `team.md`: the team's name, mode and members."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast

from msgspec import Struct

from ...values.team_options import MODE_ALIASES, MODES, Mode
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
MEMBER_SECTION = "members"
OLDER_MEMBER_SECTIONS = ("team members", "roster", "team roster")
"""Other titles for the section that lists the members. Saving a team renames the section to `Members`."""
MEMBER_LAYOUTS = (
    "a table under ## Members, ## Team Members, ## Roster or ## Team Roster, or one with the columns Name and Role"
)
_OTHER_SECTIONS = ("coordinator", "coding agent", "issue source", "project context")


class TeamFile(Struct, frozen=True):
    """The content of `team.md`: the name, the mode, and all listed members, including those that are not workers."""

    name: str
    mode: Mode
    members: tuple[Member, ...]


def parse_team(text: str) -> TeamFile:
    """Parse the text of a `team.md`."""
    lines = split_lines(text)
    members = tuple(read_member(row, table) for table in find_member_tables(lines) for row in list_member_rows(table))
    title = find_title_line(lines)
    name = "" if title is None else parse_title(lines[title])
    return TeamFile(name, find_mode(lines), members)


def parse_title(line: str) -> str:
    """Return the team's name, given the line of its heading."""
    found = parse_heading(line)
    return found.text if found else ""


def find_title_line(lines: Sequence[str]) -> int | None:
    """Return the line number of the first level-1 heading."""
    return next(
        (place for place, line in iter_content_lines(lines) if (one := parse_heading(line)) and one.level == 1), None
    )


def find_mode_lines(lines: Sequence[str]) -> list[tuple[int, str]]:
    """Return the number of each line that sets a mode, with the name of the mode in that line."""
    found = [(place, MODE_LINE.match(line)) for place, line in iter_content_lines(lines)]
    return [(place, match[2]) for place, match in found if match]


def find_mode(lines: Sequence[str]) -> Mode:
    """Return the first valid mode, or the default mode."""
    return next((known for _, word in find_mode_lines(lines) if (known := parse_mode(word))), DEFAULT_MODE)


def parse_mode(word: str) -> Mode | None:
    """Return the mode with this name, or None. The names that other programs use for modes are accepted, too."""
    name = word.strip("-_").lower()
    name = MODE_ALIASES.get(name, name)
    return cast(Mode, name) if name in MODES else None


def find_member_tables(lines: Sequence[str]) -> list[Table]:
    """Find the tables that list members: under `Members`, under a similar title, or with the columns name and role."""
    found = [table for table in parse_tables(lines) if not table.is_under(*_OTHER_SECTIONS)]
    kinds = [
        [table for table in found if table.is_under(MEMBER_SECTION)],
        [table for table in found if table.is_under(*OLDER_MEMBER_SECTIONS)],
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
    """Return the index of the name column."""
    return table.find_column("name", "member", "agent") or 0


def find_role_column(table: Table) -> int | None:
    """Return the index of the role column."""
    return table.find_column("role") if table.header else 1


def find_status_column(table: Table) -> int | None:
    """Return the index of the status column."""
    return table.find_column("status") if table.header else 3


def list_member_rows(table: Table) -> list[Row]:
    """Return the rows that list a member."""
    return [row for row in table.rows if read_member_name(row, table)]


def read_member_name(row: Row, table: Table) -> str:
    """Return the name of the member in a row, or an empty string if there is none."""
    name = strip_markup(get_cell(row.cells, find_name_column(table)))
    return name if re.search(r"\w", name) else ""


def read_member(row: Row, table: Table) -> Member:
    """Read a member from a row of the table, without the details from its charter."""
    role, status = (get_cell(row.cells, column(table)) for column in (find_role_column, find_status_column))
    return Member(read_member_name(row, table), role, status=status)
