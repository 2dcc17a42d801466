"""Define the views that show the progress of a run that a command executes or follows."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Protocol, Self

import click

from ...values.event import Entry, RunEnded, RunPaused
from .entry_lines import EntryLines, format_entry_json


class ProgressView(Protocol):
    """A view that shows the entries of a run as they arrive. In its `with` block, nothing else uses the terminal."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def show_entry(self, entry: Entry) -> None:
        """Show the next entry."""
        ...

    def refresh(self) -> None:
        """Redraw the parts that change with time."""
        ...

    def suspend(self) -> AbstractContextManager[object]:
        """Return a context in which other code can use the terminal."""
        ...

    def shorten_error(self, error: str) -> str:
        """Return the run's error without the parts that this view has printed."""
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

    def shorten_error(self, error: str) -> str:
        return error


class LineView(SilentView):
    """A view that prints most entries to standard error, one line each. The caller prints how the run ended."""

    def __init__(self) -> None:
        self._lines = EntryLines(lambda entry: not isinstance(entry.event, RunEnded | RunPaused))

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for line in self._lines.take_held_lines():
            click.echo(line, err=True)

    def show_entry(self, entry: Entry) -> None:
        for line in self._lines.add_entry(entry):
            click.echo(line, err=True)

    def shorten_error(self, error: str) -> str:
        return self._lines.shorten_error(error)


class JsonLinesView(SilentView):
    """A view that prints the whole timeline to standard output, one JSON object per line."""

    def show_entry(self, entry: Entry) -> None:
        click.echo(format_entry_json(entry))
