"""Parse `routing.md` (routes and module owners) and `decisions.md` (the team's decisions)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from ...values.plain_text import strip_emoji
from .squad_team import (
    DASHES,
    Table,
    get_cell,
    iter_content_lines,
    parse_heading,
    parse_tables,
    split_lines,
    strip_markup,
)

_ROUTE_SECTIONS = ("routing table", "work type → agent")
_DATED = re.compile(r"\[?(\d{4}-\d{2}-\d{2})(?:[T ][\d:.]+(?<=\d)Z?)?\]?\s*(?:[:–—-]\s*)?(.*)")
_DATED_AFTER = re.compile(r".*\((\d{4}-\d{2}-\d{2})\)\s*")
_AUTHOR = re.compile(r"\s*(?:[-*+]\s+)?[*_]*(?:by|author)[*_]*\s*:[*_\s]*(\S.*)", re.IGNORECASE)
_DATE = re.compile(r"\s*(?:[-*+]\s+)?[*_]*date[*_]*\s*:[*_\s]*(\d{4}-\d{2}-\d{2})\b.*", re.IGNORECASE)
_EXAMPLE = re.compile(r'(?:"[^"]*"|“[^”]*”|[^,"“]|["“])+')


class Route(Struct, frozen=True):
    """A kind of work, and the agents that do it."""

    work_type: str
    agents: list[str]
    examples: list[str]


class Ownership(Struct, frozen=True):
    """A path and its owners."""

    path: str
    primary: str
    secondary: str | None


class Noted(Struct, frozen=True):
    """A decision in `decisions.md`: its heading and the text below the heading."""

    title: str
    level: int
    date: str | None
    author: str | None
    body: str


def parse_routing(text: str) -> list[Route]:
    """Parse the routes in the text of a `routing.md`."""
    return [
        route
        for table in parse_tables(split_lines(text))
        if table.is_under(*_ROUTE_SECTIONS)
        for route in _parse_routes(table)
    ]


def _parse_routes(table: Table) -> Iterator[Route]:
    for row in table.rows:
        work_type, agents = strip_markup(get_cell(row.cells, 0)), _parse_agents(get_cell(row.cells, 1))
        third = get_cell(row.cells, 2)
        if table.find_column("secondary") == 2:
            agents, third = [*agents, *_parse_agents(third)], ""
        if work_type not in DASHES and agents and work_type.casefold() != "work type":
            yield Route(work_type, agents, _parse_examples(third))


def _parse_agents(cell: str) -> list[str]:
    return [name for one in cell.split(",") if (name := _parse_name(one)) not in DASHES]


def _parse_name(text: str) -> str:
    """Return an agent's name with any markup and surrounding emoji removed."""
    return strip_markup(strip_emoji(strip_markup(text)))


def _parse_examples(cell: str) -> list[str]:
    found = (one.strip().strip("\"'`“”‘’").strip() for one in _EXAMPLE.findall(cell))
    return [one for one in found if one not in DASHES]


def parse_modules(text: str) -> list[Ownership]:
    """Parse the module owners in the text of a `routing.md`."""
    return [
        Ownership(path, _parse_owner(get_cell(row.cells, 1)) or "", _parse_owner(get_cell(row.cells, 2)))
        for table in parse_tables(split_lines(text))
        if table.is_under("module ownership")
        for row in table.rows
        if (path := _normalise_path(get_cell(row.cells, 0))) not in DASHES
    ]


def _normalise_path(cell: str) -> str:
    return cell.replace("`", "").replace("\\", "/").strip().lower()


def _parse_owner(cell: str) -> str | None:
    name = _parse_name(cell)
    return None if name in DASHES else name


def parse_decisions(text: str) -> list[Noted]:
    """Parse the decisions in the text of a `decisions.md`."""
    lines = split_lines(text)
    headings = [
        (place, found)
        for place, line in iter_content_lines(lines)
        if (found := parse_heading(line)) and found.level <= 3
    ]
    ends = [place for place, _ in headings[1:]] + [len(lines)]
    return [
        _parse_decision(found.text, found.level, lines[place + 1 : end])
        for (place, found), end in zip(headings, ends, strict=False)
        if found.level > 1
    ]


def _parse_decision(title: str, level: int, lines: list[str]) -> Noted:
    date = _find_first_match(_DATE, lines)
    if dated := _DATED.fullmatch(title):
        date, title = dated[1], dated[2].strip() or title
    elif after := _DATED_AFTER.fullmatch(title):
        date = after[1]
    author = _find_first_match(_AUTHOR, lines)
    return Noted(title, level, date, author, "\n".join(lines).strip())


def _find_first_match(pattern: re.Pattern[str], lines: list[str]) -> str | None:
    return next((found[1].rstrip().rstrip("*_ ") for line in lines if (found := pattern.fullmatch(line))), None)
