"""Describe which steps used the run's checkout at the same time.

The diff of such a step can contain changes by the other steps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ..core.operation import Operation
from ..values.event import Entry, PlanStepFailed, PlanStepStarted, PlanStepSubmitted
from ..values.operation_path import PLAN_STEP, parse_plan_step
from ..values.plain_text import join_words, truncate_text

MOST_FILES = 20
LONGEST_PATH = 120


def describe_shared_changes(op: Operation, step: str, others: Collection[str]) -> str:
    """Return a line about the steps in `others` that used the run's checkout at the same time as `step`.

    If there are none, return an empty string. The line lists the files that these steps changed with their tools;
    changes by commands cannot be attributed.
    """
    events = (PlanStepStarted, PlanStepSubmitted, PlanStepFailed)
    entries = op.scope.timeline.find_entries_below(op.scope.path, *events)
    parallel = find_parallel_steps((entry for entry in entries if entry.operation == op.scope.path), step)
    found = [other for other in parallel if other in others]
    if not found:
        return ""
    files = {other: files for other in found if (files := _list_changed_files(op, other))}
    used = f"{join_words([f'step {other}' for other in found])} used the same checkout at the same time"
    return f"[{used}, so this diff can contain changes from other steps. {_format_files(files)}]"


def find_parallel_steps(entries: Iterable[Entry], step: str) -> list[str]:
    """Return the steps that were worked on at the same time as `step`, in the order they started."""
    began: dict[str, int] = {}
    ended: dict[str, int] = {}
    for entry in sorted(entries, key=lambda one: one.seq):
        match entry.event:
            case PlanStepStarted() as event:
                began.setdefault(event.step, entry.seq)
                ended.pop(event.step, None)
            case PlanStepSubmitted() | PlanStepFailed() as event:
                ended[event.step] = entry.seq
    start, end = began.get(step), ended.get(step)
    if start is None:
        return []
    return [
        other
        for other, seq in began.items()
        if other != step and (end is None or seq < end) and ended.get(other, start + 1) > start
    ]


def _list_changed_files(op: Operation, step: str) -> list[str]:
    """Return the files that the owners of a step changed with their tools."""
    prefix = f"{op.scope.path}/{PLAN_STEP}"
    changed = op.scope.timeline.index.changed_files.items()
    found = [files for path, files in changed if path.startswith(prefix) and parse_plan_step(path) == step]
    return sorted(set().union(*found))


def _format_files(files: Mapping[str, list[str]]) -> str:
    if not files:
        return "The tools of other steps changed no files, but commands run in those steps may have changed some."
    listed = (f"{', '.join(_shorten_list(changed))} ({step})" for step, changed in files.items())
    return f"Files changed by the tools of other steps: {'; '.join(listed)}"


def _shorten_list(files: list[str]) -> list[str]:
    shown = [truncate_text(" ".join(path.split()), LONGEST_PATH) for path in files[:MOST_FILES]]
    return [*shown, f"and {len(files) - MOST_FILES} more"] if len(files) > MOST_FILES else shown
