"""Draw the tree of a run's operations live on a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ...values.event import (
    BudgetChanged,
    CallFailed,
    Entry,
    LimitReached,
    MemberChanged,
    MessageReceived,
    Noticed,
    PauseAsked,
    RunResumed,
    RunStarted,
    SessionRevived,
    StopAsked,
)
from ...views.run_state.tree import RunView
from .entry_lines import EntryLines
from .run_tree import Row, Style, TreeSymbols, build_tree_rows, choose_symbols

STYLES: dict[Style, str] = {"name": "bold", "good": "green", "bad": "red", "busy": "cyan", "dim": "dim"}
SCROLLS_ABOVE = (
    RunStarted
    | RunResumed
    | Noticed
    | CallFailed
    | LimitReached
    | SessionRevived
    | MessageReceived
    | StopAsked
    | PauseAsked
    | BudgetChanged
    | MemberChanged
)


class LiveTree:
    """A view that redraws the tree of a run periodically. Events in `SCROLLS_ABOVE` are printed above the tree."""

    def __init__(self, run_view: RunView, *, console: Console | None = None) -> None:
        self._run_view = run_view
        self._console = console or _make_stderr_console()
        self._is_suspended = False
        self._signs = choose_symbols(self._console.encoding)
        self._lines = EntryLines(lambda entry: isinstance(entry.event, SCROLLS_ABOVE))
        self._live = Live(
            console=self._console, auto_refresh=False, redirect_stdout=False, vertical_overflow="ellipsis"
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._print_lines(self._lines.take_held_lines())
        self._draw_tree(is_live=False)
        self._live.stop()

    def show_entry(self, entry: Entry) -> None:
        self._print_lines(self._lines.add_entry(entry))

    def _print_lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._console.print(Text(line, style="dim"))

    def refresh(self) -> None:
        if not self._is_suspended:
            self._draw_tree(is_live=True)

    @contextmanager
    def suspend(self) -> Iterator[None]:
        self._live.update(Text(""), refresh=True)
        self._live.stop()
        self._is_suspended = True
        try:
            yield
        finally:
            self._is_suspended = False
            self._live.start()

    def shorten_error(self, error: str) -> str:
        return error  # nothing to remove: the tree omits the messages that the error contains

    def _draw_tree(self, *, is_live: bool) -> None:
        self._live.update(draw_run_tree(self._run_view, self._console, self._signs, is_live=is_live), refresh=True)


def _make_stderr_console() -> Console:
    """Return a console for standard error. Printed text is never interpreted as markup."""
    return Console(stderr=True, markup=False, highlight=False, emoji=False)


def draw_run_tree(run_view: RunView, console: Console, signs: TreeSymbols, *, is_live: bool) -> Group:
    """Draw the tree of a run for a console.

    While the run is active, ended operations are omitted if the tree is too tall.
    """
    draw = partial(build_tree_rows, run_view, now=time.time(), most=console.width, symbols=signs, is_live=is_live)
    rows = draw()
    if is_live and len(rows) >= console.height:
        rows = draw(is_brief=True)
    return Group(*map(_style_row, rows))


def _style_row(row: Row) -> Text:
    """Return a row as styled text that is never wrapped."""
    text = Text(no_wrap=True, overflow="ellipsis")
    for words, style in row:
        text.append(words, STYLES.get(style, ""))
    text.rstrip()
    return text
