"""What is shown of a run while this process works on it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Protocol, Self

import click

from ...values.event import Entry, RunEnded, RunPaused
from .entry_text import format_entry, format_entry_json


class ProgressView(Protocol):
    """Shows a run's entries as they come; inside its block the terminal is its own."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def show_entry(self, entry: Entry) -> None:
        """Take in the next entry."""
        ...

    def refresh(self) -> None:
        """Time has passed."""
        ...

    def suspend(self) -> AbstractContextManager[object]:
        """A block in which it leaves the terminal to others."""
        ...


class SilentView:
    """Shows nothing."""

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
    """A plain line on standard error for each change of state; how it ended is told by others."""

    def show_entry(self, entry: Entry) -> None:
        if not isinstance(entry.event, RunEnded | RunPaused) and (text := format_entry(entry)) is not None:
            click.echo(text, err=True)


class JsonLinesView(SilentView):
    """The whole timeline on standard output, an object a line."""

    def show_entry(self, entry: Entry) -> None:
        click.echo(format_entry_json(entry))
