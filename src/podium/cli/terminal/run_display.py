"""What is shown of a run while this process works on it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Protocol, Self

import click

from ...values.event import Entry, RunEnded, RunPaused
from .entry_text import json_line, line


class View(Protocol):
    """Shows a run's entries as they come; inside its block the terminal is its own."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def show(self, entry: Entry) -> None:
        """Take in the next entry."""
        ...

    def tick(self) -> None:
        """Time has passed."""
        ...

    def at_rest(self) -> AbstractContextManager[object]:
        """A block in which it leaves the terminal to others."""
        ...


class Nothing:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

    def show(self, entry: Entry) -> None:
        pass

    def tick(self) -> None:
        pass

    def at_rest(self) -> AbstractContextManager[object]:
        return nullcontext()


class Lines(Nothing):
    """A plain line on standard error for each change of state; how it ended is told by others."""

    def show(self, entry: Entry) -> None:
        if not isinstance(entry.event, RunEnded | RunPaused) and (said := line(entry)) is not None:
            click.echo(said, err=True)


class JsonLines(Nothing):
    """The whole timeline on standard output, an object a line."""

    def show(self, entry: Entry) -> None:
        click.echo(json_line(entry))
