"""Format the tree of a run's operations as rows of styled text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ...values.plain_text import format_countdown
from ...views.run_state.tree import OperationNode, RunView
from .text import align_columns, escape_for_terminal, format_duration, truncate_line, truncate_start

WIDEST_STATE = 30
NARROWEST_TAIL = 10

Style = Literal["", "name", "good", "bad", "busy", "dim"]


class StyledText(NamedTuple):
    """A piece of text in one style."""

    text: str
    style: Style = ""


Row = tuple[StyledText, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSymbols:
    """The characters used to draw a tree."""

    between: str = "├─ "
    last: str = "└─ "
    through: str = "│  "
    done: str = "✓"
    failed: str = "✗"
    busy: str = "●"


UNICODE_SYMBOLS = TreeSymbols()
ASCII_SYMBOLS = TreeSymbols(between="|- ", last="`- ", through="|  ", done="+", failed="x", busy="*")


def choose_symbols(encoding: str | None) -> TreeSymbols:
    """Return the symbols that an encoding can represent."""
    try:
        "├└│✓✗●…".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII_SYMBOLS
    return UNICODE_SYMBOLS


def format_plain_row(row: Row) -> str:
    """Return a row as text without styles."""
    return "".join(words.text for words in row).rstrip()


def build_tree_rows(
    run_view: RunView, *, now: float, most: int, symbols: TreeSymbols, is_live: bool, is_brief: bool = False
) -> list[Row]:
    """Return a row for each operation, and a second row with details if the operation is active or has failed.

    `most` is the maximum width of a row in columns. Pass `is_live=False` if no process is working on the run. With
    `is_brief`, finished operations are omitted. The rows do not repeat the error of a run that has ended: the caller
    prints it in full below the tree.
    """
    if run_view.root is None:
        return []
    positions = list(_walk_nodes(run_view.root, symbols, is_brief))
    error = str(run_view.ended.failure) if run_view.ended is not None and run_view.ended.failure is not None else ""
    cells = align_columns([_format_cells(position, now, symbols, is_live) for position in positions])
    rows: list[Row] = []
    for position, row in zip(positions, cells, strict=True):
        rows.append(_style_cells(position, row, is_live))
        more = _format_detail(position.node, max(most - len(position.below), NARROWEST_TAIL), is_live, error)
        if more is not None:
            rows.append((StyledText(position.below, "dim"), more))
    return rows


class _TreePosition(NamedTuple):
    """A node, the prefix of its own row, and the prefix of the rows below it."""

    before: str
    below: str
    node: OperationNode


def _walk_nodes(
    root: OperationNode, symbols: TreeSymbols, is_brief: bool, before: str = "", below: str = ""
) -> Iterator[_TreePosition]:
    children = [child for child in root.children if child.ended is None or not is_brief]
    yield _TreePosition(before, below + (symbols.through if children else "  "), root)
    for child in children:
        corner, side = (symbols.last, "   ") if child is children[-1] else (symbols.between, symbols.through)
        yield from _walk_nodes(child, symbols, is_brief, below + corner, below + side)


def _format_cells(position: _TreePosition, now: float, symbols: TreeSymbols, is_live: bool) -> list[str]:
    node = position.node
    mark = symbols.busy if node.ended is None else symbols.done if node.outcome == "succeeded" else symbols.failed
    seconds = (node.ended if node.ended is not None else now) - node.started
    return [
        f"{position.before}{mark} {escape_for_terminal(node.agent)}",
        "" if node.trigger == "request" else node.trigger,
        truncate_line(escape_for_terminal(_describe_activity(node, is_live=is_live, now=now)), WIDEST_STATE),
        escape_for_terminal(node.engine),
        format_duration(seconds),
        f"{node.usage.tokens:,} tokens" if node.usage.tokens else "",
    ]


def _style_cells(position: _TreePosition, cells: list[str], is_live: bool) -> Row:
    name, trigger, state, *rest = cells
    node = position.node
    style: Style = "busy" if node.ended is None and is_live else "good" if node.outcome == "succeeded" else "bad"
    guide = len(position.before)
    return (
        StyledText(name[:guide], "dim"),
        StyledText(name[guide : guide + 1], style),
        StyledText(name[guide + 1 :], "name"),
        StyledText(f"  {trigger}", "dim"),
        StyledText(f"  {state}", style),
        StyledText("  " + "  ".join(rest), "dim"),
    )


def _describe_activity(node: OperationNode, *, is_live: bool, now: float) -> str:
    """Return a short description of an operation's activity or outcome, with the remaining time if it is waiting."""
    if node.ended is not None:
        return node.outcome or "ended"
    if not is_live:
        return "unfinished"
    waiting = [child.agent for child in node.children if child.ended is None]
    if waiting:
        return f"waiting for {', '.join(waiting)}"
    if node.waits_until is not None:
        return f"limit resets in {format_countdown(node.waits_until - now)}"
    return node.activity


def _format_detail(node: OperationNode, most: int, is_live: bool, error: str) -> StyledText | None:
    """Return why an operation failed or, while it is active, the end of its text.

    Return None if there is nothing to show, or if the run's error or a child's row already shows the message.
    """
    if (failure := node.failure) is not None:
        if failure.message in error or any(
            child.failure and child.failure.message in failure.message for child in node.children
        ):
            return None
        return StyledText(truncate_line(escape_for_terminal(failure.message), most), "bad")
    if node.ended is not None or not is_live or any(child.ended is None for child in node.children):
        return None
    text = truncate_start(escape_for_terminal(node.text[-4 * most :]), most)
    return StyledText(text, "dim") if text else None
