"""Judge the changes of an operation: whether it changed files as expected, and which steps shared its checkout.

The diff of a step can contain changes by the other steps. For `expects: changes`, the checkout of a repository is
compared with its state at the start, so that changes made by commands also count.
Only what a commit of the work would contain counts, so caches do not. Without a repository, only the changes that tools
have recorded are known. Work that changed only existing tests is marked as unproved.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from ..core.operation import Operation
from ..core.proof import ONLY_TESTS
from ..values.errors import PodiumError
from ..values.event import ChangesExpected, Entry, PlanStepFailed, PlanStepStarted, PlanStepSubmitted, WorkerReturned
from ..values.operation_path import PLAN_STEP, parse_plan_step
from ..values.plain_text import join_some, join_words, truncate_text
from ..values.request import Answer

MEMORY_FOLDER = ".podium/memory"
"""The folder for the agents' own notes. Changes in it do not count as work."""
TEST_FOLDERS = frozenset(("test", "tests", "__tests__", "spec", "specs"))
_TEST_FILE = re.compile(r"test_.+|tests?\..+|.+[_.-](?:test|tests|spec)\.\w+|.+Tests?\.\w+|conftest\.py")
MOST_NAMED = 5
NOTHING_CHANGED = "it changed no files, but it must change files (expects: changes)"


MOST_FILES = 20
LONGEST_PATH = 120


def describe_shared_changes(op: Operation, step: str, others: Collection[str]) -> str:
    """Return a line about the steps in `others` that used the run's checkout at the same time as `step`.

    If there are none, return an empty string. The line lists the files that these steps changed with their tools;
    changes by commands cannot be attributed.
    """
    events = (PlanStepStarted, PlanStepSubmitted, PlanStepFailed)
    entries = op.scope.timeline.find_entries_below(op.scope.path, *events)
    parallel = _find_parallel_steps((entry for entry in entries if entry.operation == op.scope.path), step)
    found = [other for other in parallel if other in others]
    if not found:
        return ""
    files = {other: files for other in found if (files := _list_changed_files(op, other))}
    used = f"{join_words([f'step {other}' for other in found])} used the same checkout at the same time"
    return f"[{used}, so this diff can contain changes from other steps. {_format_files(files)}]"


def _find_parallel_steps(entries: Iterable[Entry], step: str) -> list[str]:
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


async def record_start(op: Operation) -> None:
    """Record the current state of the operation's checkout as the starting state, unless one is already recorded."""
    place = op.scope.child("expects")
    if place.find_outcome(ChangesExpected) is None:
        place.record_outcome(ChangesExpected(commit=await _commit_checkout(op)))


async def must_have_changed(op: Operation, answer: Answer) -> None:
    """Raise AgentFailed, with the answer as its partial answer, if the operation has changed nothing."""
    timeline, path = op.scope.timeline, op.scope.path
    usage = timeline.index.usage_below(path)
    if usage.rehearsed_calls and not usage.calls:
        return  # the rehearsal engine changes no files
    start = op.scope.child("expects").find_outcome(ChangesExpected)
    now = await _commit_checkout(op)
    if start is None or not start.commit or not now or op.repository is None:
        if not timeline.index.files_changed_below(path):
            raise op.make_error("failed", NOTHING_CHANGED, so_far=answer.text)
        return
    # A tool that changes files may have changed nothing, so the checkout is compared with its state at the start.
    changes = await op.repository.list_changes(start.commit, now)
    changes = {name: how for name, how in changes.items() if not name.startswith(f"{MEMORY_FOLDER}/")}
    # Workers change files on their own branches.
    files = {name for returned in timeline.find_events_below(path, WorkerReturned) for name in returned.files}
    if not changes and not files:
        raise op.make_error("failed", NOTHING_CHANGED, so_far=answer.text)
    if not files and all(map(is_test, changes)) and "A" not in changes.values():
        timeline.index.proof.add_doubt(path, op.agent.name, f"{ONLY_TESTS}: {join_some(sorted(changes), MOST_NAMED)}")


def is_test(path: str) -> bool:
    """Return whether a file is a test, by the names that are usual for tests."""
    *folders, name = path.split("/")
    return not TEST_FOLDERS.isdisjoint(folders) or _TEST_FILE.fullmatch(name) is not None


async def _commit_checkout(op: Operation) -> str:
    """Commit the checkout's current state. Return the commit, or "" if there is no repository or the commit fails."""
    if op.repository is None:
        return ""
    try:
        return await op.repository.commit_checkout()
    except PodiumError:
        return ""
