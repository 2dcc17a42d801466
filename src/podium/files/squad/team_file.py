"""Parse and update `team.md`: the team's name, mode and members. The rest of the file stays as it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, cast

from msgspec import Struct

from ...values.team_modes import MODE_ALIASES, MODES, Mode
from .squad_team import (
    Member,
    Row,
    Table,
    get_cell,
    is_worker,
    iter_content_lines,
    make_member_key,
    normalise_heading,
    parse_heading,
    parse_tables,
    render_row,
    split_lines,
    strip_markup,
)

COLUMNS = ("Name", "Role", "Charter", "Status")
_MODE_SPELLINGS = {"orchestrate": "orchestrator"}
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")


class MemberListing(NamedTuple):
    """A member as listed in `team.md`."""

    name: str
    role: str
    charter: str
    status: str


class RosterRow(NamedTuple):
    """A table row that lists a worker, and the table that contains the row."""

    table: Table
    row: Row


class _LineEdits:
    """Edits to lines of text, keyed by line index.

    `changes` maps a line to its replacement, or to None if the line is to be deleted. `after` maps a line to the lines
    to insert below it; the key -1 means the beginning of the text.
    """

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.changes: dict[int, str | None] = {}
        self.after: dict[int, list[str]] = {}

    def apply_changes(self, ends: Sequence[str], end: str) -> str:
        """Return the text with all edits applied."""
        parts = [f"{line}{end}" for line in self.after.get(-1, ())]
        for place, line in enumerate(self.lines):
            now = self.changes.get(place, line)
            parts += [] if now is None else [f"{now}{ends[place]}"]
            parts += [f"{more}{end}" for more in self.after.get(place, ())]
        return "".join(parts)

    def set_title(self, name: str) -> None:
        """Set the first level-1 heading to `name`. If the text has no such heading, insert one."""
        place = _find_title_line(self.lines)
        if place is None:
            self.after[-1] = [f"# {name}", "", *self.after.get(-1, ())]
        elif _parse_title(self.lines[place]) != name:
            self.changes[place] = f"# {name}"

    def set_mode(self, mode: Mode) -> None:
        """Change the line that specifies the mode.

        If no line specifies a valid mode, add such a line, unless `mode` is the default.
        """
        if _find_mode(self.lines) == mode:
            return
        word = _MODE_SPELLINGS.get(mode, mode)
        for place, known in find_mode_lines(self.lines):
            if parse_mode(known):
                self.changes[place] = MODE_LINE.sub(rf"\g<1>{word}", self.lines[place], count=1)
                return
        if mode != DEFAULT_MODE:
            place = -1 if (title := _find_title_line(self.lines)) is None else title
            said = [f"mode: {word}", ""] if place < 0 else ["", f"mode: {word}"]
            self.after[place] = [*said, *self.after.get(place, ())]

    def set_members(self, members: Sequence[MemberListing]) -> None:
        """Write these members, in order, to the rows that list workers. Rows are added or removed as needed."""
        tables = _find_member_tables(self.lines)
        if not tables:
            new = [
                "",
                "## Members",
                "",
                render_row(COLUMNS),
                _render_rule(COLUMNS),
                *(render_row(one) for one in members),
            ]
            self.after[len(self.lines) - 1] = new if self.lines else new[1:]
            return
        wide_tables = [self._add_columns(table) for table in tables]
        roster_rows = [
            RosterRow(table, one)
            for table in wide_tables
            for one in _list_member_rows(table)
            if _lists_worker(one, table)
        ]
        rows = {
            make_member_key(_read_member_name(roster_row.row, roster_row.table)): roster_row
            for roster_row in reversed(roster_rows)
        }
        for roster_row, line in zip(roster_rows, members, strict=False):
            self._fill_row(roster_row, line, rows.get(make_member_key(line.name)))
        for roster_row in roster_rows[len(members) :]:
            self.changes[roster_row.row.line] = None
        last = roster_rows[-1] if roster_rows else None
        table = last.table if last else wide_tables[0]
        place = last.row.line if last else _find_header_end(table)
        more = [
            _render_member_row(line, table, rows.get(make_member_key(line.name)))
            for line in members[len(roster_rows) :]
        ]
        if more:
            self.after[place] = more

    def _fill_row(self, roster_row: RosterRow, line: MemberListing, was: RosterRow | None) -> None:
        """Write a member to a row, unless the row is already up to date."""
        here = was is not None and was.row.line == roster_row.row.line
        if not (here and _is_up_to_date(roster_row, line)):
            self.changes[roster_row.row.line] = _render_member_row(line, roster_row.table, was)

    def _add_columns(self, table: Table) -> Table:
        """Add the columns and the Members heading that Podium expects, if they are missing. Return the new table."""
        if not table.is_under(MEMBER_SECTION):
            self._set_section_heading(table)
        if table.header is None or table.rule is None:
            return table
        cells = [*table.header.cells]
        if normalise_heading(cells[_find_name_column(table)]) != "name":
            cells[_find_name_column(table)] = "Name"
        cells += [
            name for name in COLUMNS[1:] if normalise_heading(name) not in {normalise_heading(cell) for cell in cells}
        ]
        if cells == table.header.cells:
            return table
        header = table.header._replace(cells=cells)
        self.changes[header.line], self.changes[table.rule] = render_row(cells), _render_rule(cells)
        wide = table._replace(header=header)
        for one in table.rows:
            whole = [*one.cells, *[""] * (len(cells) - len(one.cells))]
            self.changes[one.line] = render_row(whole)
        return wide

    def _set_section_heading(self, table: Table) -> None:
        """Put the table under a Members heading: rename a similar heading, or insert a new one."""
        for place, line in enumerate(self.lines):
            if (
                (found := parse_heading(line))
                and found in table.under
                and normalise_heading(found.text) in OLDER_MEMBER_SECTIONS
            ):
                self.changes[place] = "## Members"
                return
        first = _find_header_end(table) if table.header is None else table.header.line
        self.after.setdefault(first - 1, []).extend(["", "## Members", ""])


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
    members = tuple(read_member(row, table) for table in _find_member_tables(lines) for row in _list_member_rows(table))
    title = _find_title_line(lines)
    name = "" if title is None else _parse_title(lines[title])
    return TeamFile(name, _find_mode(lines), members)


def _parse_title(line: str) -> str:
    """Return the team's name, given the line of its heading."""
    found = parse_heading(line)
    return found.text if found else ""


def _find_title_line(lines: Sequence[str]) -> int | None:
    """Return the line number of the first level-1 heading."""
    return next(
        (place for place, line in iter_content_lines(lines) if (one := parse_heading(line)) and one.level == 1), None
    )


def find_mode_lines(lines: Sequence[str]) -> list[tuple[int, str]]:
    """Return the number of each line that sets a mode, with the name of the mode in that line."""
    found = [(place, MODE_LINE.match(line)) for place, line in iter_content_lines(lines)]
    return [(place, match[2]) for place, match in found if match]


def _find_mode(lines: Sequence[str]) -> Mode:
    """Return the first valid mode, or the default mode."""
    return next((known for _, word in find_mode_lines(lines) if (known := parse_mode(word))), DEFAULT_MODE)


def parse_mode(word: str) -> Mode | None:
    """Return the mode with this name, or None. The names that other programs use for modes are accepted, too."""
    name = word.strip("-_").lower()
    name = MODE_ALIASES.get(name, name)
    return cast(Mode, name) if name in MODES else None


def _find_member_tables(lines: Sequence[str]) -> list[Table]:
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
    listed = next((kind for kind in kinds if any(map(_list_member_rows, kind))), None)
    return listed if listed is not None else next((kind for kind in kinds if kind), [])


def _normalise_cells(row: Row) -> list[str]:
    return [normalise_heading(cell) for cell in row.cells]


def _find_name_column(table: Table) -> int:
    """Return the index of the name column."""
    return table.find_column("name", "member", "agent") or 0


def _find_role_column(table: Table) -> int | None:
    """Return the index of the role column."""
    return table.find_column("role") if table.header else 1


def _find_status_column(table: Table) -> int | None:
    """Return the index of the status column."""
    return table.find_column("status") if table.header else 3


def _list_member_rows(table: Table) -> list[Row]:
    """Return the rows that list a member."""
    return [row for row in table.rows if _read_member_name(row, table)]


def _read_member_name(row: Row, table: Table) -> str:
    """Return the name of the member in a row, or an empty string if there is none."""
    name = strip_markup(get_cell(row.cells, _find_name_column(table)))
    return name if re.search(r"\w", name) else ""


def read_member(row: Row, table: Table) -> Member:
    """Read a member from a row of the table, without the details from its charter."""
    role, status = (get_cell(row.cells, column(table)) for column in (_find_role_column, _find_status_column))
    return Member(_read_member_name(row, table), role, status=status)


def update_team_file(text: str, *, name: str, mode: Mode, members: Sequence[MemberListing]) -> str:
    """Update the name, mode and members in `text`, the content of a `team.md`, and return the new content."""
    whole = _LINE.findall(text)
    end = "\r\n" if whole and whole[0].endswith("\r\n") else "\n"
    lines = [line.rstrip("\r\n") for line in whole]
    ends = [line[len(bare) :] or end for line, bare in zip(whole, lines, strict=True)]
    edit = _LineEdits(lines)
    edit.set_members(members)
    edit.set_mode(mode)
    edit.set_title(name)
    if not edit.changes and not edit.after:
        return text
    return edit.apply_changes(ends, end)


def _find_header_end(table: Table) -> int:
    """Return the number of the last line before a table's rows."""
    if table.rule is not None:
        return table.rule
    return min((one.line for one in table.rows), default=1) - 1


def _lists_worker(found: Row, table: Table) -> bool:
    one = read_member(found, table)
    return is_worker(one.name, one.status)


def _is_up_to_date(roster_row: RosterRow, line: MemberListing) -> bool:
    """Return whether a member's row is complete and already has the name, role and status of `line`."""
    one = read_member(roster_row.row, roster_row.table)
    listed = _find_status_column(roster_row.table)
    is_whole = len(roster_row.row.cells) >= len(roster_row.table.header.cells) if roster_row.table.header else True
    has_status = listed is None or bool(get_cell(roster_row.row.cells, listed))
    return one.name == line.name and one.role == line.role and one.status == line.status and is_whole and has_status


def _render_member_row(line: MemberListing, table: Table, was: RosterRow | None) -> str:
    """Render a member's row. In columns that Podium does not use, the cells of the old row are preserved."""
    columns = (
        [normalise_heading(cell) for cell in table.header.cells]
        if table.header
        else [normalise_heading(name) for name in COLUMNS]
    )
    cells = [_read_previous_cell(was, column) for column in columns]
    ours: tuple[tuple[int | None, str], ...] = (
        (_find_name_column(table), line.name),
        (_find_role_column(table), line.role),
        (_find_status_column(table), line.status),
        (columns.index("charter") if "charter" in columns else None, line.charter),
    )
    for place, text in ours:
        if place is not None and place < len(cells):
            cells[place] = text
    return render_row(cells)


def _read_previous_cell(was: RosterRow | None, column: str) -> str:
    """Return the cell in this column of a member's old row, or an empty string."""
    return "" if was is None else get_cell(was.row.cells, was.table.find_column(column))


def _render_rule(columns: Sequence[str]) -> str:
    return "|" + "|".join("-" * (len(name) + 2) for name in columns) + "|"
