"""`team.md`: who is on the team, and how it works."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast

from msgspec import Struct

from ...values.agent import MODES_ELSEWHERE, Mode
from ..team_keys import MODES
from .squad_markdown import Row, Table, at, bare, heading, key, lines_of, spoken, tables
from .squad_team import Member

DEFAULT_MODE: Mode = "reflect"
MODE_LINE = re.compile(r"(\s*(?:[-*+]\s+)?[*_]*mode[*_]*\s*:[*_`\s]*)([\w-]+)", re.IGNORECASE)
_OTHERS = ("coordinator", "coding agent", "issue source", "project context")


class TeamFile(Struct, frozen=True):
    """What `team.md` says: everyone on the roster, workers or not, as they are listed."""

    name: str
    mode: Mode
    members: tuple[Member, ...]


def parse_team(text: str) -> TeamFile:
    """The team in the text of a `team.md`."""
    lines = lines_of(text)
    members = tuple(member(row, table) for table in rosters(lines) for row in named_rows(table))
    title = title_line(lines)
    name = "" if title is None else bare_title(lines[title])
    return TeamFile(name, mode_of(lines), members)


def bare_title(line: str) -> str:
    """The name that a first heading gives."""
    found = heading(line)
    return found.text if found else ""


def title_line(lines: Sequence[str]) -> int | None:
    """Where the first heading of the first level is."""
    return next((place for place, line in spoken(lines) if (one := heading(line)) and one.level == 1), None)


def mode_lines(lines: Sequence[str]) -> list[tuple[int, str]]:
    """The lines that give a mode, with the word that each gives."""
    found = [(place, MODE_LINE.match(line)) for place, line in spoken(lines)]
    return [(place, match[2]) for place, match in found if match]


def mode_of(lines: Sequence[str]) -> Mode:
    """The mode that the first line gives that gives one we know."""
    return next((known for _, word in mode_lines(lines) if (known := known_mode(word))), DEFAULT_MODE)


def known_mode(word: str) -> Mode | None:
    """The mode of that name, ours or another system's."""
    name = word.strip("-_").lower()
    name = MODES_ELSEWHERE.get(name, name)
    return cast(Mode, name) if name in MODES else None


def rosters(lines: Sequence[str]) -> list[Table]:
    """The tables that list members: under `Members`, else under `Team Roster`, else those of a Member and a Role."""
    found = [table for table in tables(lines) if not table.is_under(*_OTHERS)]
    kinds = [
        [table for table in found if table.is_under("members")],
        [table for table in found if table.is_under("team roster")],
        [table for table in found if table.header and _keys(table.header) in (["member", "role"], ["name", "role"])],
    ]
    listed = next((kind for kind in kinds if any(map(named_rows, kind))), None)
    return listed if listed is not None else next((kind for kind in kinds if kind), [])


def _keys(row: Row) -> list[str]:
    return [key(cell) for cell in row.cells]


def name_column(table: Table) -> int:
    """Where names stand."""
    return table.column("name", "member", "agent") or 0


def role_column(table: Table) -> int | None:
    """Where roles stand."""
    return table.column("role") if table.header else 1


def status_column(table: Table) -> int | None:
    """Where statuses stand."""
    return table.column("status") if table.header else 3


def named_rows(table: Table) -> list[Row]:
    """The rows that name somebody."""
    return [row for row in table.rows if name_in(row, table)]


def name_in(row: Row, table: Table) -> str:
    """Whom a row names."""
    name = bare(at(row.cells, name_column(table)))
    return name if re.search(r"\w", name) else ""


def member(row: Row, table: Table) -> Member:
    """The member of a row; what a charter adds is not known here."""
    role, status = (at(row.cells, column(table)) for column in (role_column, status_column))
    return Member(name_in(row, table), role, status=status)
