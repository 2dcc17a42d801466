"""Try to merge commits, and return the resulting trees and conflicts.

No branch or file is changed. Git creates unreferenced objects, and removes them later. `overlap_forecast` reports the
outcomes, and `merge_train` uses the trees.

Branches that are developed in parallel can use the same number for different records, so the records on a branch get
their final numbers when the branch is merged.

A branch is removed only if it still points to the expected commit and is not checked out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from msgspec import Struct

from ...values.errors import OutsideFailed
from ...values.plain_text import escape_unprintable, truncate_text
from ...views.decision_record import ADR_FOLDER, link_adr_files, renumber_adr_files
from ..git.folder_files import list_folder_blobs, read_blobs
from ..git.repository import GitLocation, call_git, read_git_output
from ..git.revision import HEADS, decode_path, resolve_location, resolve_tree
from ..git.snapshot import write_changed_tree, write_commit

PREFIX = "podium/merge-"
FIELDS = "%(objectname) %(tree) %(if)%(worktreepath)%(then)checked-out%(else)free%(end) %(refname)"


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegrationBranch:
    """A branch that a merge train created, with its commit and its tree."""

    branch: str
    commit: str
    tree: str
    is_checked_out: bool = False


AT_ONCE = 32
LONGEST = 300.0
FILES_SHOWN = 10
LINES_SHOWN = 60
LONGEST_LINE = 300
USAGE = 129
"""Git's exit code for an unknown option."""


class Conflict(Struct, frozen=True, kw_only=True):
    """A conflict in a merge; `kind` is git's term for it, such as `rename/rename`."""

    kind: str
    files: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanMerge:
    """A merge without conflicts, and its tree."""

    tree: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictingMerge:
    """A merge with conflicts. The files in `tree` have conflict markers; `tree` is empty if git produced no tree."""

    tree: str
    files: tuple[str, ...]
    conflicts: tuple[Conflict, ...]


MergeOutcome = CleanMerge | ConflictingMerge


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSide:
    """A commit and its display name."""

    name: str
    commit: str


async def try_merge(repo: GitLocation, ours: MergeSide, theirs: MergeSide) -> MergeOutcome:
    """Return the outcome of merging two commits."""
    return (await try_merges(repo, [(ours, theirs)]))[0]


async def try_merges(repo: GitLocation, pairs: Sequence[tuple[MergeSide, MergeSide]]) -> list[MergeOutcome]:
    """Return the outcome of merging each pair, in order."""
    tried: list[MergeOutcome] = []
    remaining = iter(pairs)
    while some := list(islice(remaining, AT_ONCE)):
        tried += await _try_merge_batch(repo, some)
    return tried


async def _try_merge_batch(repo: GitLocation, pairs: Sequence[tuple[MergeSide, MergeSide]]) -> list[MergeOutcome]:
    """Return the outcome of merging each pair, using a single git process."""
    asked = "".join(f"{ours.commit} {theirs.commit}\n" for ours, theirs in pairs)
    done = await call_git(repo, "merge-tree", "--stdin", stdin=asked.encode(), timeout=LONGEST)
    if done.code == 0:
        return [_name_conflict_sides(one, *pair) for one, pair in zip(_parse_merge_tree(done.out), pairs, strict=True)]
    if len(pairs) > 1:  # git stops at the first pair without common history
        return [one for pair in pairs for one in await _try_merge_batch(repo, [pair])]
    if "unrelated histories" in done.err:
        ours, theirs = pairs[0]
        text = f"{ours.name} and {theirs.name} have no commit in common"
        return [
            ConflictingMerge(tree="", files=(), conflicts=(Conflict(kind="unrelated histories", files=(), text=text),))
        ]
    if done.code == USAGE:
        raise OutsideFailed("merging without a checkout needs git 2.39 or later; install a newer git")
    raise OutsideFailed(f"git merge-tree failed: {escape_unprintable(truncate_text(done.err, 300))}")


def _parse_merge_tree(out: bytes) -> Iterator[MergeOutcome]:
    """Parse the output of `git merge-tree --stdin`."""
    words = iter(out.split(b"\0"))
    while status := next(words, b""):
        tree = next(words).decode()
        if status == b"1":
            next(words)  # skip the empty field that ends this merge's output
            yield CleanMerge(tree=tree)
            continue
        stages = list(iter(words.__next__, b""))
        files = dict.fromkeys(decode_path(stage.partition(b"\t")[2]) for stage in stages)
        yield ConflictingMerge(tree=tree, files=tuple(files), conflicts=tuple(_parse_conflicts(words)))


def _parse_conflicts(words: Iterator[bytes]) -> Iterator[Conflict]:
    """Yield the conflicts in the messages of one outcome."""
    while count := next(words):
        files = tuple(decode_path(next(words)) for _ in range(int(count)))
        kind, text = next(words).decode(), next(words).decode(errors="backslashreplace").strip()
        if about := re.match(r"CONFLICT \((.*)\)$", kind):
            yield Conflict(kind=about[1], files=files, text=text)


def _name_conflict_sides(outcome: MergeOutcome, ours: MergeSide, theirs: MergeSide) -> MergeOutcome:
    """Return the outcome, with display names instead of commit ids in its messages."""
    if isinstance(outcome, CleanMerge):
        return outcome
    told = tuple(
        Conflict(kind=one.kind, files=one.files, text=_replace_commit_ids(one.text, ours, theirs))
        for one in outcome.conflicts
    )
    return ConflictingMerge(tree=outcome.tree, files=outcome.files, conflicts=told)


def _replace_commit_ids(text: str, *sides: MergeSide) -> str:
    """Return `text` with display names instead of commit ids."""
    for side in sides:
        text = text.replace(side.commit, side.name)
    return text


async def format_conflict_excerpt(
    repo: GitLocation, clash: ConflictingMerge, ours: MergeSide, theirs: MergeSide
) -> str:
    """Return both sides of each conflict, file by file, with git's markers; long excerpts are truncated."""
    parts: list[str] = []
    for file in clash.files[:FILES_SHOWN] if clash.tree else ():
        if marked := await _read_conflict_lines(repo, clash.tree, file):
            parts.append(f"{escape_unprintable(file)}\n{_replace_commit_ids(marked, ours, theirs)}")
    if len(clash.files) > FILES_SHOWN:
        parts.append(f"and {len(clash.files) - FILES_SHOWN} more files")
    return "\n\n".join(parts)


async def _read_conflict_lines(repo: GitLocation, tree: str, file: str) -> str:
    """Return a file's conflicts with markers and line numbers, or an empty string if it has none or cannot be read."""
    try:
        done = await call_git(repo, "cat-file", "blob", f"{tree}:{file}")
    except OutsideFailed:
        return ""
    if done.code != 0 or b"\0" in done.out:
        return ""
    kept = list(islice(_iter_conflict_lines(done.out.decode(errors="backslashreplace").splitlines()), LINES_SHOWN + 1))
    if len(kept) > LINES_SHOWN:
        kept[LINES_SHOWN:] = ["…"]
    return "\n".join(truncate_text(line, LONGEST_LINE) for line in kept)


def _iter_conflict_lines(lines: Sequence[str]) -> Iterator[str]:
    inside = False
    for number, line in enumerate(lines, start=1):
        if line.startswith("<<<<<<< "):
            inside = True
            yield f"line {number}:"
        if inside:
            yield line
        if line.startswith(">>>>>>> "):
            inside = False


async def renumber_records(place: GitLocation, ours: str, theirs: MergeSide) -> str:
    """Return the commit to merge: `theirs`, or a commit on top of it that renumbers records.

    Records on the branch are renumbered if `ours` already uses their numbers.
    """
    arriving = await list_folder_blobs(place, theirs.commit, ADR_FOLDER)
    there = await list_folder_blobs(place, ours, ADR_FOLDER) if arriving else {}
    if not there or arriving.items() <= there.items():
        return theirs.commit
    found = await call_git(place, "merge-base", ours, theirs.commit)
    bases = found.out.decode().split() if found.code == 0 else []
    before = await list_folder_blobs(place, bases[0], ADR_FOLDER) if bases else {}
    texts = await read_blobs(place, (*arriving.values(), *there.values(), *before.values()))
    sides = ({path: texts[blob] for path, blob in side.items()} for side in (arriving, there, before))
    changes = renumber_adr_files(*sides)
    if not changes:
        return theirs.commit
    tree = await write_changed_tree(place, theirs.commit, changes)
    return await write_commit(place, tree, [theirs.commit], f"Renumber the decision records of {theirs.name}")


async def link_records(place: GitLocation, ours: str, tree: str) -> str:
    """Return the tree of a merge onto `ours`, with links between new records and the records that they replace."""
    merged = await list_folder_blobs(place, tree, ADR_FOLDER)
    if not merged or merged == await list_folder_blobs(place, ours, ADR_FOLDER):
        return tree
    texts = await read_blobs(place, merged.values())
    changes = link_adr_files({path: texts[blob] for path, blob in merged.items()})
    return await write_changed_tree(place, tree, changes) if changes else tree


def name_integration_branch(at: datetime) -> str:
    """Return a name for the integration branch of a merge train that starts at this time."""
    return f"{PREFIX}{at:%Y%m%d-%H%M%S}"


async def list_integration_branches(repo: GitLocation) -> list[IntegrationBranch]:
    """Return the existing integration branches, sorted by name.

    The names contain the time, so the oldest comes first.
    """
    listed = await read_git_output(repo, "for-each-ref", f"--format={FIELDS}", f"{HEADS}{PREFIX}*")
    found = []
    for line in listed.splitlines():
        commit, tree, use, ref = line.split(" ", 3)
        found.append(
            IntegrationBranch(
                branch=ref.removeprefix(HEADS), commit=commit, tree=tree, is_checked_out=use == "checked-out"
            )
        )
    return found


async def remove_superseded_branches(repo: GitLocation, commit: str, *, except_ref: str | None) -> list[str]:
    """Remove the integration branches whose work `commit` contains, and return their names.

    Such a branch has the same tree as `commit`, and all its commits except merges are in the history of `commit`.
    The branch `except_ref` and branches that are checked out are kept.
    """
    place = resolve_location(repo)
    tree = await resolve_tree(place, commit)
    removed = []
    for one in await list_integration_branches(place):
        if one.tree != tree or one.is_checked_out or HEADS + one.branch == except_ref:
            continue
        own = await read_git_output(place, "rev-list", "--no-merges", "--max-count=1", one.commit, f"^{commit}")
        if not own and await remove_integration_branch(place, HEADS + one.branch, one.commit):
            removed.append(one.branch)
    return removed


async def remove_integration_branch(repo: GitLocation, ref: str, commit: str) -> bool:
    """Remove an integration branch that is at `commit` and not checked out. Return whether it was removed."""
    place = resolve_location(repo)
    if any(HEADS + one.branch == ref and one.is_checked_out for one in await list_integration_branches(place)):
        return False
    # Given the commit as the old value, git removes the ref only if nobody has moved it.
    return (await call_git(place, "update-ref", "-d", ref, commit)).code == 0
