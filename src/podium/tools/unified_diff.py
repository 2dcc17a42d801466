"""Build complete unified diffs between the text before and after a change."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

CONTEXT = 3
COMPARED = 5000
"""The maximum number of changed lines to compare. A larger change is shown as one replacement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnifiedDiff:
    """A diff, with the number of lines that it adds and removes."""

    text: str
    changed_lines: int


def split_lines(text: str) -> list[str]:
    """Split text into lines with their line endings. Only a line feed ends a line, as in editors and git."""
    parts = text.split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def build_unified_diff(path: str, before: str | None, after: str) -> UnifiedDiff:
    """Return the diff from `before` to `after`. `before` is None if the file is new or its content cannot be shown."""
    old, new = split_lines(before or ""), split_lines(after)
    same_start = _count_common_lines(old, new)
    same_end = _count_common_lines(old[same_start:][::-1], new[same_start:][::-1])
    if len(old) + len(new) - 2 * (same_start + same_end) > COMPARED:
        hunks = _build_replacing_hunk(old, new, same_start, same_end)
    else:
        hunks = list(difflib.unified_diff(old, new, n=CONTEXT))[2:]
    head = ["--- /dev/null\n" if before is None else f"--- a/{path}\n", f"+++ b/{path}\n"]
    changed = sum(line.startswith(("+", "-")) for line in hunks)
    return UnifiedDiff(text="".join(_mark_missing_newline(line) for line in [*head, *hunks]), changed_lines=changed)


def _count_common_lines(old: list[str], new: list[str]) -> int:
    return next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))


def _build_replacing_hunk(old: list[str], new: list[str], same_start: int, same_end: int) -> list[str]:
    """Return one hunk that replaces all changed lines. For a large change, finding a small diff would take too long."""
    start = max(0, same_start - CONTEXT)
    old_end, new_end = len(old) - same_end, len(new) - same_end
    after = old[old_end : old_end + CONTEXT]
    sizes = f"-{start + 1},{old_end - start + len(after)} +{start + 1},{new_end - start + len(after)}"
    return [
        f"@@ {sizes} @@\n",
        *(f" {line}" for line in old[start:same_start]),
        *(f"-{line}" for line in old[same_start:old_end]),
        *(f"+{line}" for line in new[same_start:new_end]),
        *(f" {line}" for line in after),
    ]


def _mark_missing_newline(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
