"""Diagnostics: messages about a file, with the line and key that they concern."""

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

Severity = Literal["error", "warning", "notice"]


class Diagnostic(Struct, frozen=True, kw_only=True):
    """A message about a file: what was found and what was expected, in one sentence.

    A file with an error is not used; a file that has only warnings is still used. A notice is for information only.
    `line` and `key` are not set if the diagnostic concerns the whole file.
    """

    severity: Severity
    path: str
    line: int | None = None
    key: str = ""
    message: str

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


def summarise_errors(errors: Sequence[Diagnostic], *, command: str) -> str:
    """Return the first error and, if there are more, their number and the command that shows them all."""
    more = len(errors) - 1
    return f"{errors[0]} (and {more} more; run {command} to see all)" if more else f"{errors[0]}"


def filter_errors(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Return the diagnostics that are errors."""
    return tuple(diagnostic for diagnostic in diagnostics if diagnostic.severity == "error")
