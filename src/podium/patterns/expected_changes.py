"""Fail an operation that changed no files even though its agent or team sets `expects: changes`.

In a repository, the checkout is compared with its state at the start, so that changes made by commands also count.
Only what a commit of the work would contain counts, so caches do not. Without a repository, only the changes that tools
have recorded are known. Work that changed only existing tests is marked as unproved.
"""

from __future__ import annotations

import re

from ..core.operation import Operation
from ..core.proof import ONLY_TESTS
from ..values.errors import PodiumError
from ..values.event import ChangesExpected, WorkerReturned
from ..values.plain_text import join_some
from ..values.request import Answer

MEMORY_FOLDER = ".podium/memory"
"""The folder for the agents' own notes. Changes in it do not count as work."""
TEST_FOLDERS = frozenset(("test", "tests", "__tests__", "spec", "specs"))
_TEST_FILE = re.compile(r"test_.+|tests?\..+|.+[_.-](?:test|tests|spec)\.\w+|.+Tests?\.\w+|conftest\.py")
MOST_NAMED = 5
NOTHING_CHANGED = "it changed no files, but it must change files (expects: changes)"


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
