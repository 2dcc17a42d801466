"""Parse a lead's reply into a plan, which assigns tasks to workers.

This module only parses text. The team modes start the workers, wait for them and tell the lead which items
were skipped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct

from ..values.json import Json
from ..values.plain_text import emoji_characters, strip_emoji

MARKER = re.compile(r"@worker:", re.IGNORECASE | re.ASCII)
END = re.compile(r"@end(?![\w-])", re.IGNORECASE | re.ASCII)

MOST_ARRAYS = 200
"""Maximum number of positions in a reply that are tried as the start of a JSON value."""


class Assignment(Struct, frozen=True):
    """A task for one worker. `worker` is the registered name."""

    worker: str
    task: str


class Skipped(Struct, frozen=True):
    """A plan item that cannot be assigned: the name as written, the task, and the reason."""

    name: str
    task: str
    why: str


class Plan(Struct, frozen=True):
    """The assignments in a reply, in order and not yet merged, together with the items that were skipped."""

    assignments: list[Assignment]
    skipped: list[Skipped]


class SharedTask(Struct, frozen=True):
    """A task that was assigned to several workers with identical wording."""

    task: str
    workers: list[str]


def parse_plan(reply: str, workers: Iterable[str], *, aliases: Mapping[str, str] = MappingProxyType({})) -> Plan:
    """Return the plan in a reply. The plan can be a JSON array or a series of `@worker:` blocks.

    These formats are tried one after the other, until one of them yields an assignment. `aliases` maps other
    names for the workers, such as display names, to their registered names.
    """
    names = _WorkerNames(workers, aliases)
    text = reply.replace("\r\n", "\n").replace("\r", "\n")
    told: list[Skipped] = []
    for read in (_parse_whole_or_fenced, _parse_array_with_markers, _parse_blocks, _parse_array_in_prose):
        plan, before = read(text, names), set(told)
        told += [one for one in plan.skipped if one not in before]
        if plan.assignments:
            return Plan(plan.assignments, told)
    return Plan([], told)


def parse_assignments(reply: str, workers: Iterable[str]) -> list[Assignment]:
    """Return the assignments in a reply, without the skipped items."""
    return parse_plan(reply, workers).assignments


def merge(assignments: Iterable[Assignment]) -> list[Assignment]:
    """Merge each worker's assignments into one, in order of first mention. A line `---` separates the tasks."""
    tasks: dict[str, list[str]] = {}
    for one in assignments:
        tasks.setdefault(one.worker, []).append(one.task)
    return [Assignment(worker, "\n---\n".join(parts)) for worker, parts in tasks.items()]


def find_shared_tasks(assignments: Iterable[Assignment]) -> list[SharedTask]:
    """Return the tasks that were assigned to several workers with identical wording. A good plan has none."""
    found: dict[str, list[str]] = {}
    spelled: dict[str, str] = {}
    for one in assignments:
        key = " ".join(one.task.split())
        spelled.setdefault(key, one.task)
        if one.worker not in found.setdefault(key, []):
            found[key].append(one.worker)
    return [SharedTask(spelled[key], workers) for key, workers in found.items() if len(workers) > 1]


# --- names

_QUOTES = "`'\"*\u2018\u2019\u201c\u201d"
_AFTER = re.compile(rf"[{_QUOTES}]*+[:,;.]?[{_QUOTES}]*+(?=[\s\u2013\u2014]|$)")


class _HeaderMatch(NamedTuple):
    """A registered worker whose name is at the start of a line, and the position after the name."""

    worker: str
    end: int


class _WorkerNames:
    """The names of the registered workers. Lookups ignore case and emoji around names, and prefer the longest match."""

    def __init__(self, workers: Iterable[str], aliases: Mapping[str, str]) -> None:
        registered = [(name, name) for name in workers]
        others = [(one, name) for alias, name in aliases.items() for one in (alias, strip_emoji(alias))]
        # Sorting is stable, so a registered name comes before an alias of the same length.
        known = [(bare, name) for written, name in (*registered, *others) if (bare := _strip_quotes(written))]
        self._patterns = [
            (re.compile(re.escape(bare), re.IGNORECASE), name)
            for bare, name in sorted(known, key=lambda one: len(one[0]), reverse=True)
        ]
        self.has_spaces = any(" " in bare for bare, _ in known)

    def find_exact(self, written: str) -> str | None:
        """Return the worker with this name, or None."""
        for bare in (_strip_quotes(written), _strip_quotes(strip_emoji(_strip_quotes(written)))):
            if found := next((name for pattern, name in self._patterns if pattern.fullmatch(bare)), None):
                return found
        return None

    def match_header(self, header: str) -> _HeaderMatch | None:
        """Return the worker whose name is at the start of a header line, or None.

        The name must end at a word boundary. If several names match, the longest one is used.
        """
        start = len(header) - len(header.lstrip(_QUOTES + emoji_characters()))
        for pattern, name in self._patterns:
            if (found := pattern.match(header, start)) and (
                after := _AFTER.match(header, _skip_emoji(header, found.end()))
            ):
                return _HeaderMatch(name, after.end())
        return None

    def guess_unknown_name(self, header: str, *, has_more: bool) -> str:
        """Return the most likely name in a header line that matches no worker.

        This is the quoted text at the start of the line. Without quotes, it is the first word, or the whole line if
        workers' names contain spaces and more lines follow.
        """
        header = header.strip()
        if quoted := re.match(r"(?:`([^`]+)`|\"([^\"]+)\"|\*\*([^*]+)\*\*)", header):
            return _strip_quotes(next(part for part in quoted.groups() if part))
        words = header.split()
        return _strip_quotes(header if self.has_spaces and has_more else words[0] if words else "")


def _skip_emoji(header: str, place: int) -> int:
    """Return the position after the emoji that follow a name, or the same position if there are none."""
    rest = header[place:]
    between = rest[: len(rest) - len(rest.lstrip(_QUOTES + emoji_characters()))].rstrip()
    return place + len(between) if between.strip(_QUOTES) else place


def _strip_quotes(name: str) -> str:
    return name.strip().strip(_QUOTES).strip()


# --- JSON

_decoder = json.JSONDecoder(strict=False)  # models put line breaks in their strings
_FENCED = re.compile(r"(?<![`~])(?:`{3,}+|~{3,}+)[ \t]*+[\w+-]*+\s*+(?=\[)")
_FENCE_END = re.compile(r"\s*(?:`{3}|~{3}|\Z)")
_OPENING = re.compile(r"\[|\{(?=\s*+\")")


class _ArrayMatch(NamedTuple):
    """A plan that was found as a JSON array in prose, and the position of the array."""

    plan: Plan
    start: int
    end: int


def _parse_whole_or_fenced(text: str, names: _WorkerNames) -> Plan:
    """Parse the whole reply as a JSON array, or else the arrays in its code fences."""
    stripped = text.strip()
    if stripped.startswith("["):
        found, end = _decode_array(stripped, 0)
        if found is not None and end == len(stripped):
            return _parse_items(found, names)
    assignments: list[Assignment] = []
    skipped: list[Skipped] = []
    for fence in islice(_FENCED.finditer(text), MOST_ARRAYS):
        found, end = _decode_array(text, fence.end())
        if found is not None and _FENCE_END.match(text, end):
            plan = _parse_items(found, names)
            assignments += plan.assignments
            skipped += plan.skipped
    return Plan(assignments, skipped)


def _parse_array_with_markers(text: str, names: _WorkerNames) -> Plan:
    """Parse a JSON array of assignments in prose, unless there is an `@worker:` marker outside the array.

    Markers in the array's strings are part of the tasks.
    """
    array = _find_array_in_prose(text, names)
    return Plan([], []) if MARKER.search(text[: array.start]) or MARKER.search(text[array.end :]) else array.plan


def _parse_array_in_prose(text: str, names: _WorkerNames) -> Plan:
    """Parse a JSON array of assignments in prose. The text around the array is ignored, even if it contains markers."""
    return _find_array_in_prose(text, names).plan


def _find_array_in_prose(text: str, names: _WorkerNames) -> _ArrayMatch:
    """Find the first JSON array in `text` that is a plan. Top-level objects, and any arrays in them, are skipped."""
    place = 0
    for _ in range(MOST_ARRAYS):
        if (opening := _OPENING.search(text, place)) is None:
            break
        found, place = _decode_array(text, opening.start())
        if found is not None and (plan := _parse_items(found, names)) != Plan([], []):
            return _ArrayMatch(plan, opening.start(), place)
    return _ArrayMatch(Plan([], []), 0, 0)


def _decode_array(text: str, place: int) -> tuple[list[Json] | None, int]:
    """Return the array that starts at `place`, or None, and the position to continue from."""
    try:
        found, end = _decoder.raw_decode(text, place)
    except (ValueError, RecursionError):
        return None, place + 1
    return (found if isinstance(found, list) else None), end


def _parse_items(found: Sequence[Json], names: _WorkerNames) -> Plan:
    """Parse the items of an array. If no item looks like an assignment, return an empty plan."""
    plan = Plan([], [])
    if not any(isinstance(item, dict) and ("worker" in item or "task" in item) for item in found):
        return plan
    for item in found:
        name, task = (item.get("worker"), item.get("task")) if isinstance(item, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(task, str):
            written, rest = (str(one) if isinstance(one, str) else "" for one in (name, task))
            plan.skipped.append(Skipped(written, rest, "not an object with the strings worker and task"))
            continue
        _add_item(plan, names.find_exact(name), _strip_quotes(name), task.strip())
    return plan


def _add_item(plan: Plan, worker: str | None, name: str, task: str) -> None:
    if worker is None:
        plan.skipped.append(Skipped(name, task, "no worker has that name" if name else "it names no worker"))
    elif not task:
        plan.skipped.append(Skipped(worker, "", "its task is empty"))
    else:
        plan.assignments.append(Assignment(worker, task))


# --- blocks

# Decoration before a marker at the start of a line belongs to the marker, not to the preceding task.
_BLOCK = re.compile(
    r"(?:^[ \t>]*+(?:[-+*][ \t]++|\d{1,3}[.)][ \t]++|\#{1,6}[ \t]++)?[*_`\"']*)?@worker:",
    re.IGNORECASE | re.ASCII | re.MULTILINE,
)
_END_LINE = re.compile(rf"^[ \t]*+[*_`]*+{END.pattern}", re.IGNORECASE | re.ASCII | re.MULTILINE)
_FENCE = re.compile(r"^[ \t>]*(?:`{3,}|~{3,})[ \t]*([^\s`]*)", re.MULTILINE)


def _parse_blocks(text: str, names: _WorkerNames) -> Plan:
    """Parse the assignments in `@worker:` blocks."""
    plan = Plan([], [])
    for block in _find_blocks(text):
        header, _, below = block.text.partition("\n")
        named = names.match_header(header)
        if named is None:
            name = names.guess_unknown_name(header, has_more=bool(below.strip()))
            rest = header.strip().lstrip(_QUOTES).removeprefix(name).lstrip(_QUOTES)
            _add_item(plan, None, name, block.extract_task(f"{rest}\n{below}"))
        else:
            _add_item(plan, named.worker, named.worker, block.extract_task(f"{header[named.end :]}\n{below}"))
    return plan


class _Block(NamedTuple):
    """The text that follows one marker.

    `is_ended` is true if an `@end` line ends the text. `is_fenced` is true if the marker is inside a code fence.
    """

    text: str
    is_ended: bool
    is_fenced: bool

    def extract_task(self, text: str) -> str:
        """Return the task in `text`. If a code fence surrounds the blocks, the lines of that fence are left out."""
        return (text if self.is_ended else _strip_outer_fence(text, is_fenced=self.is_fenced)).strip()


def _find_blocks(text: str) -> Iterator[_Block]:
    markers = list(_BLOCK.finditer(text))
    is_fenced, place = False, 0
    for number, marker in enumerate(markers):
        for fence in _FENCE.finditer(text, place, marker.start()):
            is_fenced = not is_fenced or bool(fence[1])
        place = marker.end()
        limit = markers[number + 1].start() if number + 1 < len(markers) else len(text)
        end = _END_LINE.search(text, place, limit)
        yield _Block(text[place : end.start() if end else limit], end is not None, is_fenced)


def _strip_outer_fence(text: str, *, is_fenced: bool) -> str:
    """Remove fence lines that have no counterpart in `text`.

    Such a line either closes a fence that was opened before `text`, or opens a fence at the end of `text`. With
    `is_fenced`, `text` starts inside a fence.
    """
    lines = text.split("\n")
    opened: int | None = None
    closes: int | None = None
    for place, line in enumerate(lines):
        if (fence := _FENCE.match(line)) is None:
            continue
        if opened is not None:
            opened = None if not fence[1] else opened
        elif is_fenced and not fence[1]:
            closes, is_fenced = place, False
        else:
            opened = place
    loose = {closes} if closes is not None else set()
    if opened is not None and not "".join(lines[opened + 1 :]).strip():
        loose.add(opened)
    return "\n".join(line for place, line in enumerate(lines) if place not in loose)
