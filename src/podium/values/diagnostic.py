"""A finding: one thing about a file that a person should know, and where it stands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

Severity = Literal["error", "warning", "notice"]


class Diagnostic(Struct, frozen=True, kw_only=True):
    """What stands in a file, and what would be right, in one sentence.

    With an error nothing of the file counts, with a warning it does, and a notice is only good to
    know. `line` and `key` are absent where the finding is about the file as a whole.
    """

    severity: Severity
    path: str
    line: int | None = None
    key: str = ""
    message: str

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


def filter_errors(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Those that keep a file from being used."""
    return tuple(diagnostic for diagnostic in diagnostics if diagnostic.severity == "error")
