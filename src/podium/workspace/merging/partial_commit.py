"""Commit a part of a branch's changes: whole files, or some hunks of a file, on top of the branch's base.

The part is built from the contents of both commits, so line endings and a missing line break at the end of a file stay
as they are. No ref, index or checkout changes. The branch keeps all its commits, so its other changes can be merged
later.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO

from msgspec import Struct

from ...values.errors import Mistake
from ...values.plain_text import escape_unprintable
from ...views.diff_hunks import DiffFile, DiffHunk, parse_diff
from ..git.repository import GitLocation, call_git, read_git_output, split_nul_paths
from ..git.revision import resolve_location, resolve_tree
from ..git.snapshot import TreeEntry, read_person, write_blob, write_commit, write_tree_entries
from .fast_forward import format_paths

LONGEST = 300.0
NOTE = "Podium-Part-Of"
"""The commit message trailer of a partial commit. Its value is the id of the commit that has all the changes."""
# `parse_diff` needs a diff without colours and with these prefixes, whatever the repository's settings are.
DIFF_FORM = ("--no-color", "--src-prefix=a/", "--dst-prefix=b/")


class ChosenFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file chosen for a merge, or some of its hunks.

    `hunks` contains the numbers of the chosen hunks, counted from 0 in the diff. If it is None, the whole file is
    chosen.
    """

    path: str
    hunks: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchFile:
    """A file that differs between two commits. `was` is its old name if it was renamed.

    `old` is None for a new file, and `new` for a deleted one. `hunks` contains the hunks that can be chosen one by one.
    If there are none, `reason` says why. If `is_ambiguous` is true, another file is shown under the same name, because
    the names are not valid UTF-8.
    """

    path: bytes
    was: bytes | None
    old: TreeEntry | None
    new: TreeEntry | None
    hunks: tuple[DiffHunk, ...]
    reason: str
    is_ambiguous: bool = False


async def read_patch(place: GitLocation, base: str, commit: str) -> str:
    """Return the diff between two commits, in the format that `parse_diff` expects."""
    return await read_git_output(place, "diff", "--patch", *DIFF_FORM, base, commit, "--", timeout=LONGEST)


async def commit_part(place: GitLocation, base: str, commit: str, chosen: Sequence[ChosenFile], *, branch: str) -> str:
    """Write a commit on top of `base` with the chosen changes from `commit`, and return its id.

    Return `commit` itself if everything was chosen. Raise Mistake if the choice is empty or invalid.
    """
    at = resolve_location(place)
    if not chosen:
        raise Mistake(f"no changes from {escape_unprintable(branch)} were chosen; choose at least one file or hunk")
    tree = await _write_part_tree(at, base, commit, chosen)
    if tree == await resolve_tree(at, commit):
        return commit
    message = f"Take a part of {branch}\n\n{NOTE}: {commit}"
    # Use the time of the branch's commit, so that the same choice always gives the same commit and is merged only once.
    seconds = int(await read_git_output(at, "log", "-1", "--format=%ct", commit))
    return await write_commit(at, tree, [base], message, author=await read_person(at), seconds=seconds)


async def _write_part_tree(place: GitLocation, base: str, commit: str, chosen: Sequence[ChosenFile]) -> str:
    """Write the tree of `base` with the chosen changes from `commit`, and return its id."""
    changed = await list_changed_files(place, base, commit)
    entries: dict[bytes, TreeEntry | None] = {}
    for one in chosen:
        file = _find_changed_file(changed, one.path)
        if one.hunks is None or set(one.hunks) == set(range(len(file.hunks))) != set():
            if file.was is not None:
                entries.setdefault(file.was, None)
            entries[file.path] = file.new
        else:
            entries[file.path] = await _write_hunks(place, file, one)
    tree = await write_tree_entries(place, base, entries)
    await _must_change_only(place, base, tree, entries)
    return tree


async def list_changed_files(place: GitLocation, base: str, commit: str) -> dict[str, BranchFile]:
    """Return the files that differ between two commits, keyed by the names that the diff shows for them."""
    shown = {file.path: file for file in parse_diff(await read_patch(place, base, commit)).files}
    listed = await read_git_output(place, "diff", "--raw", "-z", "--no-abbrev", base, commit, "--", timeout=LONGEST)
    words = iter(split_nul_paths(listed))
    found: dict[str, BranchFile] = {}
    for word in words:
        old_mode, mode, old, new, state = word.removeprefix(":").split(" ")
        names = [os.fsencode(next(words)) for _ in range(2 if state[0] in "RC" else 1)]
        name = names[-1].decode(errors="replace")
        hunks, reason = _find_choosable_hunks(shown.get(name), (old_mode, mode), state)
        found[name] = BranchFile(
            path=names[-1],
            was=names[0] if state[0] == "R" else None,
            old=None if state[0] in "AC" else TreeEntry(mode=old_mode, object=old),
            new=None if state[0] == "D" else TreeEntry(mode=mode, object=new),
            hunks=hunks,
            reason=reason,
            is_ambiguous=name in found,
        )
    return found


_REASONS = {
    "A": "was added",
    "D": "was deleted",
    "R": "was renamed",
    "C": "was copied",
    "T": "became another kind of file",
}


def _find_choosable_hunks(
    file: DiffFile | None, modes: tuple[str, str], state: str
) -> tuple[tuple[DiffHunk, ...], str]:
    """Return the hunks in a file that can be chosen one by one. If there are none, also return the reason."""
    if reason := _REASONS.get(state[0]):
        return (), reason
    if modes[0] != modes[1]:
        return (), "changed its mode"
    if file is None or file.is_whole:
        return (), "has no lines to choose from"
    return tuple(file.hunks), ""


def _find_changed_file(changed: Mapping[str, BranchFile], path: str) -> BranchFile:
    """Return the changed file with this name. Raise Mistake if there is none, or if the name is ambiguous."""
    if (file := changed.get(path)) is None:
        raise Mistake(f"{escape_unprintable(path)!r} is not a changed file; changed: {format_paths(list(changed))}")
    if file.is_ambiguous:
        raise Mistake(
            f"two changed files are both displayed as {escape_unprintable(path)!r}, so neither can be chosen; "
            "merge the whole branch"
        )
    return file


async def _write_hunks(place: GitLocation, file: BranchFile, chosen: ChosenFile) -> TreeEntry:
    """Apply the chosen hunks to a file's old content, store the result, and return its tree entry."""
    name, numbers = escape_unprintable(chosen.path), sorted(set(chosen.hunks or ()))
    if not numbers:
        raise Mistake(f"no hunk in {name} was chosen; choose at least one, or leave the file out")
    if file.reason:
        raise Mistake(f"{name} {file.reason}, so its hunks cannot be chosen one by one; choose the whole file")
    if numbers[0] < 0 or numbers[-1] >= len(file.hunks):
        wrong = numbers[0] if numbers[0] < 0 else numbers[-1]
        raise Mistake(f"{name} has no hunk {wrong}; it has {len(file.hunks)}, numbered from 0")
    assert file.old is not None, "an added file has no hunks to choose from"
    assert file.new is not None, "a deleted file has no hunks to choose from"
    old, new = await _read_blob(place, file.old.object), await _read_blob(place, file.new.object)
    content = splice_hunks(old, new, [file.hunks[number] for number in numbers])
    return TreeEntry(mode=file.new.mode, object=await write_blob(place, content))


async def _read_blob(place: GitLocation, id: str) -> bytes:
    done = await call_git(place, "cat-file", "blob", id)
    if done.code != 0:
        raise Mistake(f"git cannot read the file with the id {id}; git fsck may say why")
    return done.out


def splice_hunks(old: bytes, new: bytes, hunks: Iterable[DiffHunk]) -> bytes:
    """Return the old content with only these hunks applied. Their lines are copied from the new content."""
    old_lines, new_lines = BytesIO(old).readlines(), BytesIO(new).readlines()
    parts: list[bytes] = []
    done = 0
    for hunk in hunks:
        # If a hunk has no lines on one side, git gives the number of the line before it.
        start = hunk.old - (hunk.old_count > 0)
        first = hunk.new - (hunk.new_count > 0)
        parts += old_lines[done:start]
        parts += new_lines[first : first + hunk.new_count]
        done = start + hunk.old_count
    return b"".join((*parts, *old_lines[done:]))


async def _must_change_only(
    place: GitLocation, base: str, tree: str, entries: Mapping[bytes, TreeEntry | None]
) -> None:
    """Raise Mistake if a chosen file has replaced a file or folder that was not chosen."""
    listed = await read_git_output(place, "diff-tree", "-r", "-z", "--name-only", "--no-renames", base, tree)
    gone = [path for path in map(os.fsencode, split_nul_paths(listed)) if path not in entries]
    if gone:
        names = format_paths([os.fsdecode(path) for path in gone])
        raise Mistake(f"a chosen file would replace {names}, which was not chosen; choose both, or neither")
