"""The tree of a run's operations, as rows of styled words that any terminal can show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ...views.run_view import Node, Picture
from .measure import aligned, cut, span, tail
from .text import visible

WIDEST_STATE = 30
NARROWEST_TAIL = 10

Style = Literal["", "name", "good", "bad", "busy", "dim"]


class Span(NamedTuple):
    """Some words in one style."""

    text: str
    style: Style = ""


Row = tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """What a tree is drawn with."""

    between: str = "├─ "
    last: str = "└─ "
    past: str = "│  "
    done: str = "✓"
    failed: str = "✗"
    busy: str = "●"


DRAWN = Signs()
ASCII = Signs(between="|- ", last="`- ", past="|  ", done="+", failed="x", busy="*")


def signs_for(encoding: str | None) -> Signs:
    """What can be shown in an encoding."""
    try:
        "├└│✓✗●…".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return DRAWN


def plain(row: Row) -> str:
    """A row without its styles."""
    return "".join(words.text for words in row).rstrip()


def tree(picture: Picture, *, now: float, most: int, signs: Signs, is_live: bool, is_brief: bool = False) -> list[Row]:
    """A row for each operation, and below those at work or failed what there is to say about them.

    `most` is how many columns a row may take. Without `is_live` nobody works on the run now; with
    `is_brief` operations that have ended are left out.
    """
    if picture.root is None:
        return []
    places = list(_walked(picture.root, signs, is_brief))
    cells = aligned([_cells(place, now, signs, is_live) for place in places])
    rows: list[Row] = []
    for place, row in zip(places, cells, strict=True):
        rows.append(_styled(place, row, is_live))
        if (more := _more(place.node, max(most - len(place.below), NARROWEST_TAIL), is_live)) is not None:
            rows.append((Span(place.below, "dim"), more))
    return rows


class _Place(NamedTuple):
    """A node with what is drawn before it, and before what stands below it."""

    before: str
    below: str
    node: Node


def _walked(root: Node, signs: Signs, is_brief: bool, before: str = "", below: str = "") -> Iterator[_Place]:
    children = [child for child in root.children if child.ended is None or not is_brief]
    yield _Place(before, below + (signs.past if children else "  "), root)
    for child in children:
        corner, side = (signs.last, "   ") if child is children[-1] else (signs.between, signs.past)
        yield from _walked(child, signs, is_brief, below + corner, below + side)


def _cells(place: _Place, now: float, signs: Signs, is_live: bool) -> list[str]:
    node = place.node
    mark = signs.busy if node.ended is None else signs.done if node.outcome == "succeeded" else signs.failed
    seconds = (node.ended if node.ended is not None else now) - node.started
    return [
        f"{place.before}{mark} {visible(node.agent)}",
        "" if node.trigger == "request" else node.trigger,
        cut(visible(doing(node, is_live=is_live)), WIDEST_STATE),
        visible(node.engine),
        span(seconds),
        f"{node.usage.tokens:,} tokens" if node.usage.tokens else "",
    ]


def _styled(place: _Place, cells: list[str], is_live: bool) -> Row:
    name, trigger, state, *rest = cells
    node = place.node
    style: Style = "busy" if node.ended is None and is_live else "good" if node.outcome == "succeeded" else "bad"
    guide = len(place.before)
    return (
        Span(name[:guide], "dim"),
        Span(name[guide : guide + 1], style),
        Span(name[guide + 1 :], "name"),
        Span(f"  {trigger}", "dim"),
        Span(f"  {state}", style),
        Span("  " + "  ".join(rest), "dim"),
    )


def doing(node: Node, *, is_live: bool) -> str:
    """What an operation is at, in a few words."""
    if node.ended is not None:
        return node.outcome or "ended"
    if not is_live:
        return "unfinished"
    waiting = [child.agent for child in node.children if child.ended is None]
    return f"waits for {', '.join(waiting)}" if waiting else node.doing


def _more(node: Node, most: int, is_live: bool) -> Span | None:
    """Why it failed, where no operation below says the same; or the end of what it is saying."""
    if (failure := node.failure) is not None:
        if any(child.failure and child.failure.message in failure.message for child in node.children):
            return None
        return Span(cut(visible(failure.message), most), "bad")
    if node.ended is not None or not is_live or any(child.ended is None for child in node.children):
        return None
    said = tail(visible(node.text[-4 * most :]), most)
    return Span(said, "dim") if said else None
