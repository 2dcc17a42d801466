"""Changing the list of members in a `team.md` and leaving the rest of its text as it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ...values.agent import Mode
from .squad_markdown import Row, Table, at, heading, key, row
from .squad_name import is_worker, known_as
from .team_file import (
    DEFAULT_MODE,
    MODE_LINE,
    bare_title,
    known_mode,
    member,
    mode_lines,
    mode_of,
    name_column,
    name_in,
    named_rows,
    role_column,
    rosters,
    status_column,
    title_line,
)

COLUMNS = ("Name", "Role", "Charter", "Status")
_ELSEWHERE = {"orchestrate": "orchestrator"}
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")


class Line(NamedTuple):
    """A member as it is listed."""

    name: str
    role: str
    charter: str
    status: str


class Slot(NamedTuple):
    """A row of a table that lists a worker."""

    table: Table
    row: Row


def rewritten(text: str, *, name: str, mode: Mode, members: Sequence[Line]) -> str:
    """`text` as the `team.md` of this team."""
    whole = _LINE.findall(text)
    end = "\r\n" if whole and whole[0].endswith("\r\n") else "\n"
    lines = [line.rstrip("\r\n") for line in whole]
    ends = [line[len(bare) :] or end for line, bare in zip(whole, lines, strict=True)]
    edit = _Edit(lines)
    edit.members(members)
    edit.mode(mode)
    edit.title(name)
    if not edit.changes and not edit.after:
        return text
    return edit.text(ends, end)


class _Edit:
    """Changes to lines by their numbers: other words for one, None to drop it, and lines to follow one."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.changes: dict[int, str | None] = {}
        self.after: dict[int, list[str]] = {}

    def text(self, ends: Sequence[str], end: str) -> str:
        """The text with all changes."""
        parts = [f"{line}{end}" for line in self.after.get(-1, ())]
        for place, line in enumerate(self.lines):
            now = self.changes.get(place, line)
            parts += [] if now is None else [f"{now}{ends[place]}"]
            parts += [f"{more}{end}" for more in self.after.get(place, ())]
        return "".join(parts)

    def title(self, name: str) -> None:
        """Make `name` the first heading."""
        place = title_line(self.lines)
        if place is None:
            self.after[-1] = [f"# {name}", "", *self.after.get(-1, ())]
        elif bare_title(self.lines[place]) != name:
            self.changes[place] = f"# {name}"

    def mode(self, mode: Mode) -> None:
        """Say the mode, where nothing says it yet and it is not the usual one."""
        if mode_of(self.lines) == mode:
            return
        word = _ELSEWHERE.get(mode, mode)
        for place, known in mode_lines(self.lines):
            if known_mode(known):
                self.changes[place] = MODE_LINE.sub(rf"\g<1>{word}", self.lines[place], count=1)
                return
        if mode != DEFAULT_MODE:
            place = -1 if (title := title_line(self.lines)) is None else title
            said = [f"mode: {word}", ""] if place < 0 else ["", f"mode: {word}"]
            self.after[place] = [*said, *self.after.get(place, ())]

    def members(self, members: Sequence[Line]) -> None:
        """List these members, each where one was listed before, in their order."""
        tables = rosters(self.lines)
        if not tables:
            new = ["", "## Members", "", row(COLUMNS), _rule(COLUMNS), *(row(one) for one in members)]
            self.after[len(self.lines) - 1] = new if self.lines else new[1:]
            return
        widened = [self._widened(table) for table in tables]
        slots = [Slot(table, one) for table in widened for one in named_rows(table) if _lists_worker(one, table)]
        rows = {known_as(name_in(slot.row, slot.table)): slot for slot in reversed(slots)}
        for slot, line in zip(slots, members, strict=False):
            self._fill(slot, line, rows.get(known_as(line.name)))
        for slot in slots[len(members) :]:
            self.changes[slot.row.line] = None
        last = slots[-1] if slots else None
        table = last.table if last else widened[0]
        place = last.row.line if last else _head(table)
        more = [_listed(line, table, rows.get(known_as(line.name))) for line in members[len(slots) :]]
        if more:
            self.after[place] = more

    def _fill(self, slot: Slot, line: Line, was: Slot | None) -> None:
        """Put a member into a row; one that is there as it should be stays as it is written."""
        here = was is not None and was.row.line == slot.row.line
        if not (here and _says(slot, line)):
            self.changes[slot.row.line] = _listed(line, slot.table, was)

    def _widened(self, table: Table) -> Table:
        """The table with all of our columns, under a heading that says what it lists."""
        if not table.is_under("members"):
            self._head(table)
        if table.header is None or table.rule is None:
            return table
        cells = [*table.header.cells]
        if key(cells[name_column(table)]) != "name":
            cells[name_column(table)] = "Name"
        cells += [name for name in COLUMNS[1:] if key(name) not in {key(cell) for cell in cells}]
        if cells == table.header.cells:
            return table
        header = table.header._replace(cells=cells)
        self.changes[header.line], self.changes[table.rule] = row(cells), _rule(cells)
        wide = table._replace(header=header)
        for one in table.rows:
            whole = [*one.cells, *[""] * (len(cells) - len(one.cells))]
            self.changes[one.line] = row(whole)
        return wide

    def _head(self, table: Table) -> None:
        """Call the section of a table Members: by its heading, if that is the older one, or by a new one."""
        for place, line in enumerate(self.lines):
            if (found := heading(line)) and found in table.under and key(found.text) == "team roster":
                self.changes[place] = "## Members"
                return
        first = _head(table) if table.header is None else table.header.line
        self.after.setdefault(first - 1, []).extend(["", "## Members", ""])


def _head(table: Table) -> int:
    """The line after which a table's rows begin."""
    if table.rule is not None:
        return table.rule
    return min((one.line for one in table.rows), default=1) - 1


def _lists_worker(found: Row, table: Table) -> bool:
    one = member(found, table)
    return is_worker(one.name, one.status)


def _says(slot: Slot, line: Line) -> bool:
    """Whether a row says what a line does."""
    one = member(slot.row, slot.table)
    listed = status_column(slot.table)
    is_whole = len(slot.row.cells) >= len(slot.table.header.cells) if slot.table.header else True
    has_status = listed is None or bool(at(slot.row.cells, listed))
    return one.name == line.name and one.role == line.role and one.status == line.status and is_whole and has_status


def _listed(line: Line, table: Table, was: Slot | None) -> str:
    """A row for a member, with what its row said before in columns that are not ours."""
    columns = [key(cell) for cell in table.header.cells] if table.header else [key(name) for name in COLUMNS]
    cells = [_before(was, column) for column in columns]
    ours: tuple[tuple[int | None, str], ...] = (
        (name_column(table), line.name),
        (role_column(table), line.role),
        (status_column(table), line.status),
        (columns.index("charter") if "charter" in columns else None, line.charter),
    )
    for place, text in ours:
        if place is not None and place < len(cells):
            cells[place] = text
    return row(cells)


def _before(was: Slot | None, column: str) -> str:
    """What a member's row said in a column."""
    return "" if was is None else at(was.row.cells, was.table.column(column))


def _rule(columns: Sequence[str]) -> str:
    return "|" + "|".join("-" * (len(name) + 2) for name in columns) + "|"
