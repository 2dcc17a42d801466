"""Views that show a run while this process works on it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Protocol, Self

import click

from ...values.event import Entry, RunEnded, RunPaused
from .entry_text import format_entry, format_entry_json


class ProgressView(Protocol):
    """A view that shows the entries of a run as they arrive. Until its block ends, nothing else uses the terminal."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def show_entry(self, entry: Entry) -> None:
        """Show the next entry."""
        ...

    def refresh(self) -> None:
        """Redraw what depends on the time."""
        ...

    def suspend(self) -> AbstractContextManager[object]:
        """Return a context in which other code can use the terminal."""
        ...


class SilentView:
    """A view that shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

    def show_entry(self, entry: Entry) -> None:
        pass

    def refresh(self) -> None:
        pass

    def suspend(self) -> AbstractContextManager[object]:
        return nullcontext()


class LineView(SilentView):
    """A view that prints a line to standard error for each change of state. The caller reports how the run ended."""

    def show_entry(self, entry: Entry) -> None:
        if not isinstance(entry.event, RunEnded | RunPaused) and (text := format_entry(entry)) is not None:
            click.echo(text, err=True)


class JsonLinesView(SilentView):
    """A view that prints the whole timeline to standard output, one JSON object per line."""

    def show_entry(self, entry: Entry) -> None:
        click.echo(format_entry_json(entry))
