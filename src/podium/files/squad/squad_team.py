"""Define a squad's team: its members and their shared context.

Strings are normalised in the same way as when a file is read, so that a team that is written and read again is
equal to the original.

Squads are written by hand and by models, and their tables are often not valid Markdown: the separator below the
header is missing or has a different number of cells, a second header appears in the middle, or a comment
interrupts the rows. A Markdown parser does not recognise such tables, or treats the text below them as rows, and
it drops cells, which would then be lost on saving. So this module parses the lines itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, structs

from ...values.request import replace_surrogates
from ...values.team_modes import Mode

MAX_ROLE_LENGTH = 60
_YOU_ARE = re.compile(r"you\s+are\s+(?:an|a|the)\s+", re.IGNORECASE)
_SENTENCE = re.compile(r".*?(?=[.!?](?:\s|$)|\n|\Z)", re.DOTALL)
_INFRASTRUCTURE = {"scribe", "ralph", "rai", "fact-checker", "coordinator"}
_STANDING_BY = re.compile(r"\b(?:silent|monitor|rai|verifier|inactive|human|coding agent)\b", re.IGNORECASE)
ALUMNI = "_alumni"


_FENCE = re.compile(r"[ \t>]*(`{3,}|~{3,})[ \t]*([^`]*)$")
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(\S.*)")
_RULE = re.compile(r"\s*:?-+:?\s*")
_PIPE = re.compile(r"(?<!\\)\|")
_LINK = re.compile(r"\[([^\[\]]{0,200})\]\([^()]{0,500}\)")
DASHES = frozenset({"", "-", "--", "---", "–", "—"})


class Heading(NamedTuple):
    """A heading. Levels start at 1."""

    level: int
    text: str


class Row(NamedTuple):
    """A table row and its line number."""

    line: int
    cells: list[str]


class Table(NamedTuple):
    """A Markdown table.

    `under` contains the headings of the table's enclosing sections. `rule` is the line number of the separator below
    the table's header.
    """

    under: tuple[Heading, ...]
    header: Row | None
    rule: int | None
    rows: list[Row]

    def find_column(self, *names: str) -> int | None:
        """Return the index of the first column with one of these names."""
        for place, cell in enumerate(self.header.cells if self.header else ()):
            if normalise_heading(cell) in names:
                return place
        return None

    def is_under(self, *titles: str) -> bool:
        """Return whether the table is in a section with one of these titles."""
        return any(heading.level >= 2 and normalise_heading(heading.text) in titles for heading in self.under)


ACTIVE = "Active"


class Member(Struct, frozen=True):
    """A member of a squad. `shortened` is set if `prompt` contains only the start of the charter."""

    name: str
    role: str = ""
    prompt: str = ""
    model: str = ""
    status: str = ACTIVE
    shortened: bool = False

    def __post_init__(self) -> None:
        put = structs.force_setattr
        put(self, "name", to_single_line(self.name))
        put(self, "role", to_single_line(self.role))
        put(self, "prompt", normalise_text(self.prompt))
        put(self, "model", to_single_line(self.model or ""))
        put(self, "status", to_single_line(self.status) or ACTIVE)


class Team(Struct, frozen=True):
    """A team. `source` is the folder that it was read from, and `notices` contains messages for the user."""

    name: str
    mode: Mode = "reflect"
    members: tuple[Member, ...] = ()
    shared_context: str = ""
    routing_context: str = ""
    source: Path | None = None
    notices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        put = structs.force_setattr
        put(self, "name", to_single_line(self.name))
        put(self, "members", tuple(self.members))
        put(self, "shared_context", normalise_text(self.shared_context or ""))
        put(self, "routing_context", normalise_text(self.routing_context or ""))
        put(self, "notices", tuple(self.notices))


def to_single_line(text: str) -> str:
    """Return `text` on one line, for a heading or a table cell."""
    return " ".join(normalise_text(text).split())


def normalise_text(text: str) -> str:
    """Normalise `text` in the same way as file content: UTF-8, `\\n` line endings, no surrounding whitespace."""
    text = replace_surrogates(text).replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    return re.sub(r"\A[\s\ufeff]+", "", text).rstrip()


def split_lines(text: str) -> list[str]:
    """Split text into lines at any kind of line ending."""
    return re.split(r"\r\n|\r|\n", text)


def normalise_heading(text: str) -> str:
    """Normalise a heading for comparison: remove decoration, ignore case, unify arrows."""
    return re.sub(r"[^\w→]+", " ", re.sub(r"[-=]>|➡", "→", text)).strip().casefold()


def parse_heading(line: str) -> Heading | None:
    """Parse a line as a heading. Return None if it is not a heading."""
    found = _HEADING.match(line)
    return Heading(len(found[1]), found[2].rstrip()) if found else None


def iter_content_lines(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines outside code fences, with their numbers. Only the first line of a comment is yielded."""
    fence, is_comment = "", False
    for place, line in enumerate(lines):
        if is_comment:
            is_comment = "-->" not in line
        elif mark := _FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
        elif not fence:
            is_comment = line.lstrip().startswith("<!--") and "-->" not in line
            yield place, line


def iter_section_lines(lines: Sequence[str]) -> Iterator[tuple[int, str, tuple[Heading, ...]]]:
    """Yield the lines of `iter_content_lines`, each with its number and the headings of the sections it is in.

    A heading is in its own section.
    """
    above: tuple[Heading, ...] = ()
    for place, line in iter_content_lines(lines):
        if found := parse_heading(line):
            above = (*(one for one in above if one.level < found.level), found)
        yield place, line, above


def parse_tables(lines: Sequence[str]) -> list[Table]:
    """Parse all tables. A row above a separator starts a new table."""
    found: list[Table] = []
    last, above = -2, tuple[Heading, ...]()
    for place, line, under in iter_section_lines(lines):
        if not line.lstrip().startswith("|"):
            continue
        row = Row(place, _split_cells(line))
        if place != last + 1 or under != above:
            found.append(Table(under, None, None, []))
        last, above = place, under
        table = found[-1]
        if not _is_separator_row(row.cells):
            table.rows.append(row)
        elif table.rows and table.rows[-1].line == place - 1:
            header = table.rows.pop()
            if not table.rows and table.header is None:
                found.pop()
            found.append(Table(under, header, place, []))
    return [table._replace(rows=[row for row in table.rows if not _is_header_row(row, table)]) for table in found]


def _is_separator_row(found: Sequence[str]) -> bool:
    """Return whether a row is the separator below a header."""
    return all(_RULE.fullmatch(cell) for cell in found)


def _is_header_row(row: Row, table: Table) -> bool:
    """Return whether a row only repeats the column names."""
    keys = [normalise_heading(cell) for cell in row.cells]
    if table.header is not None and keys == [normalise_heading(cell) for cell in table.header.cells]:
        return True
    return len(keys) > 1 and keys[0] in ("name", "member") and keys[1] == "role"


def _split_cells(line: str) -> list[str]:
    """Split a row into cells."""
    text = line.strip().removeprefix("|")
    parts = _PIPE.split(text)
    if len(parts) > 1 and not parts[-1].strip():
        parts.pop()
    return [part.replace("\\|", "|").strip() for part in parts]


def render_row(found: Sequence[str]) -> str:
    """Render a row with these cells."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in found) + " |"


def strip_markup(cell: str) -> str:
    """Return a cell's text without surrounding emphasis or code marks, and with links replaced by their text."""
    return _LINK.sub(r"\1", cell).strip().strip("*`").strip()


def get_cell(found: Sequence[str], place: int | None) -> str:
    """Return the cell at an index, or an empty string if the index is None or the row is shorter."""
    return found[place] if place is not None and place < len(found) else ""


def slug(name: str) -> str:
    """Return `name` in lower case, with everything except ASCII letters and digits replaced by hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def make_member_key(name: str) -> str:
    """Return the key that identifies a member: the slug of its name, or the name if the slug would be empty."""
    return slug(name) or name.strip().casefold()


def agent_name(session: str, team: str) -> str:
    """Return the agent name for a session. If the session's name starts with the team's name, remove this prefix."""
    prefix = re.match(rf"{re.escape(team.strip())}(?![^\W_])", session.strip(), re.IGNORECASE) if team.strip() else None
    return slug(session.strip()[prefix.end() :] if prefix else session) or "agent"


def derive_role(name: str, prompt: str | None) -> str:
    """Derive a worker's role from the start of its prompt, or from its name if it has no prompt."""
    text = (prompt or "").strip().lstrip("#>*_ \t\n")
    if said := _YOU_ARE.match(text):
        text = text[said.end() :]
    sentence = _SENTENCE.match(text)
    role = " ".join(sentence[0].split()).strip("*_` ") if sentence else ""
    return (role or " ".join(re.split(r"[\s_-]+", name)).strip())[:MAX_ROLE_LENGTH].rstrip() or name


def is_reserved(name: str) -> bool:
    """Return whether the name belongs to the squad's infrastructure and not to a worker."""
    return slug(name) in _INFRASTRUCTURE or name.strip().casefold() == ALUMNI


def is_worker(name: str, status: str) -> bool:
    """Return whether a listed member is a worker.

    People, accounts such as `@copilot`, inactive members and the squad's infrastructure are not.
    """
    return not is_reserved(name) and not name.startswith("@") and _STANDING_BY.search(status) is None
