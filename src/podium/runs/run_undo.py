"""Undo a run: restore the files that it changed in the user's checkout.

A file is restored only if it has not changed since the run ended. A run's changes are the differences between the two
saved states of the checkout: before its first change, and at its end.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from anyio import to_thread
from msgspec import Struct

from ..core.gate import InvalidCall
from ..store.reader import StoreReader
from ..tools.checkout_files import CheckoutFiles, open_checkout
from ..values.actor import Actor, act
from ..values.errors import Mistake, OutsideFailed
from ..values.event import ActionBegan, CheckoutSaved, Entry, RunEnded, RunStarted
from ..values.store_address import StoreAddress
from ..values.tool_table import RECORDED_TOOLS
from ..workspace.git.repository import Repository, call_git, read_git_output
from ..workspace.git.snapshot import take_snapshot
from ..workspace.merging.move_note import describe_author
from .assembly.checkout_saving import UNDO_REFS, make_skip_test

FILE_MODES = {"100644": 0o644, "100755": 0o755}
ABSENT = "000000"
UndoState = Literal["can be undone", "undone", "already as before", "changed since", "not a regular file"]


class UndoneFile(Struct, frozen=True, kw_only=True):
    """A file that a run changed, and whether it can be or has been restored. `change` is the kind of change."""

    path: str
    change: Literal["added", "changed", "deleted"]
    state: UndoState
    is_certain: bool = True
    """Whether the timeline records the change. If not, a command in the run or somebody else changed the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoPlan:
    """The plan for undoing a run. `current` is a commit with the current files."""

    run: str
    repository: Repository
    before: str
    current: str
    files: tuple[UndoneFile, ...]

    @property
    def undoable(self) -> list[UndoneFile]:
        return [file for file in self.files if file.state == "can be undone"]


class _TreeChange(Struct, frozen=True, kw_only=True):
    """A difference between two trees: the modes before and after, and the path."""

    old_mode: str
    new_mode: str
    path: str


async def plan_undo(store: StoreAddress, run: str, *, by: Actor | None = None) -> UndoPlan:
    """Find out what undoing a run would do. Raise Mistake if the run cannot be undone at all.

    The current files are saved as a commit, whose message says `by` whom the run is undone, if it is.
    """
    entries = await to_thread.run_sync(_read_entries, store, run)
    started = entries[0].started
    saved = _find_saved_states(run, started, entries)
    try:
        repository = Repository.at(Path(started.repo))
        message = describe_author(f"before run {run} was undone", by)
        current = await take_snapshot(repository, message=message, skip=make_skip_test(repository.root))
        changes = await _read_changes(repository, saved["before"], saved["after"])
        since = {one.path for one in await _read_changes(repository, saved["after"], current)}
        unlike = {one.path for one in await _read_changes(repository, saved["before"], current)}
    except OutsideFailed as error:
        raise Mistake(f"run {run} cannot be undone, because its saved files are not available: {error}") from error
    known, ran_others = _collect_changed_files(entries, Path(started.repo), repository.root)
    files = tuple(
        UndoneFile(
            path=one.path,
            change="added" if one.old_mode == ABSENT else "deleted" if one.new_mode == ABSENT else "changed",
            state=_judge_file(one, since, unlike),
            is_certain=one.path in known,
        )
        for one in changes
        if one.path in known or ran_others
    )
    return UndoPlan(run=run, repository=repository, before=saved["before"], current=current, files=files)


def _find_saved_states(run: str, started: RunStarted, entries: Sequence[Entry]) -> dict[str, str]:
    """Return the commits with the files before and after a run. Raise Mistake if there are none."""
    if not any(isinstance(entry.event, RunEnded) for entry in entries):
        raise Mistake(f"run {run} has not ended; stop it first with: podium stop {run}")
    if started.errand is not None and started.errand.has_checkout:
        branch = started.errand.branch
        raise Mistake(f"run {run} worked on branch {branch}, not in your checkout; see: podium workers diff {branch}")
    saved: dict[str, str] = {
        entry.event.moment: entry.event.commit for entry in entries if isinstance(entry.event, CheckoutSaved)
    }
    if not any(isinstance(entry.event, ActionBegan) for entry in entries):
        raise Mistake(f"run {run} changed nothing in your checkout, so there is nothing to undo")
    if saved.keys() != {"before", "after"}:
        how = "files are saved only in a git repository with a commit, and only if saving does not take too long"
        raise Mistake(f"run {run} cannot be undone: its files were not saved; {how}")
    return saved


def _collect_changed_files(entries: Iterable[Entry], folder: Path, root: Path) -> tuple[set[str], bool]:
    """Return the files that tools recorded as changed, and whether the run used tools that may change other files.

    The paths are relative to the repository's `root`; `folder` is the folder that the run worked in.
    """
    inside = folder.resolve().relative_to(root)
    actions = [entry.event.action for entry in entries if isinstance(entry.event, ActionBegan)]
    known = {(inside / path).as_posix() for action in actions for path in action.outputs}
    return known, any(action.tool not in RECORDED_TOOLS for action in actions)


def _judge_file(change: _TreeChange, since: set[str], unlike: set[str]) -> UndoState:
    if change.path not in unlike:
        return "already as before"
    if change.path in since:
        return "changed since"
    modes = {change.old_mode, change.new_mode} - {ABSENT}
    return "can be undone" if modes <= FILE_MODES.keys() else "not a regular file"


async def _read_changes(repository: Repository, old: str, new: str) -> list[_TreeChange]:
    """Return the differences between two commits."""
    done = await call_git(repository, "diff-tree", "-r", "-z", "--no-renames", "--end-of-options", old, new)
    if done.code != 0:
        raise OutsideFailed(done.err or f"git diff-tree failed with exit code {done.code}")
    parts = os.fsdecode(done.out).split("\0")
    return [
        _TreeChange(old_mode=facts[1:7], new_mode=facts[8:14], path=path)
        for facts, path in zip(parts[::2], parts[1::2], strict=False)
    ]


@act("approve")
async def undo_run(store: StoreAddress, shown: UndoPlan, *, by: Actor) -> UndoPlan:
    """Restore the files that `shown` lists as undoable and that can still be undone.

    Return a plan with the new state of each file. The current files are saved first, under the ref that `save_ref`
    returns; the message of that commit says who undid the run.
    """
    plan = await plan_undo(store, shown.run, by=by)
    await read_git_output(plan.repository, "update-ref", save_ref(plan.run), plan.current)
    agreed = {file.path for file in shown.undoable}
    files: list[UndoneFile] = []
    for file in plan.files:
        if file.state == "can be undone" and file.path in agreed:
            file = await _undo_file(plan, file)
        files.append(file)
    return UndoPlan(
        run=plan.run, repository=plan.repository, before=plan.before, current=plan.current, files=tuple(files)
    )


def save_ref(run: str) -> str:
    """Return the ref for the files that are saved before a run is undone."""
    return f"{UNDO_REFS}/{run}/undone"


async def _undo_file(plan: UndoPlan, file: UndoneFile) -> UndoneFile:
    content, mode = b"", ABSENT
    if file.change != "added":
        listed = await read_git_output(plan.repository, "ls-tree", "-z", plan.before, "--", f":(literal){file.path}")
        mode = listed[:6]
        done = await call_git(plan.repository, "cat-file", "--filters", f"{plan.before}:{file.path}")
        if done.code != 0:
            raise OutsideFailed(f"{file.path} cannot be read from the saved files: {done.err}")
        content = done.out

    def put_back() -> UndoState:
        with open_checkout(plan.repository.root) as checkout:
            try:
                if checkout.locate(file.path).path != file.path:  # a folder was replaced by a link
                    return "changed since"
                _write_back(checkout, file.path, content, mode)
            except (InvalidCall, OSError):
                return "changed since"
        return "undone"

    return UndoneFile(
        path=file.path, change=file.change, state=await to_thread.run_sync(put_back), is_certain=file.is_certain
    )


def _write_back(checkout: CheckoutFiles, path: str, content: bytes, mode: str) -> None:
    """Restore a file's earlier content and mode, or remove it and the folders that become empty."""
    folder, _, name = path.rpartition("/")
    if mode != ABSENT:
        checkout.write_file(path, content)
        with checkout.open_file(path) as fd:
            is_program = FILE_MODES[mode] & stat.S_IXUSR
            now = stat.S_IMODE(os.fstat(fd).st_mode)
            os.fchmod(fd, (now | (now & 0o444) >> 2) if is_program else now & ~0o111)
        return
    with checkout.open_directory(folder or ".") as parent:
        os.unlink(name, dir_fd=parent)
    while folder:
        above, _, name = folder.rpartition("/")
        with checkout.open_directory(above or ".") as parent:
            try:
                os.rmdir(name, dir_fd=parent)
            except OSError:  # it is not empty
                return
        folder = above


def _read_entries(store: StoreAddress, run: str) -> list[Entry]:
    with StoreReader(store) as reader:
        return reader.read_entries(run)
