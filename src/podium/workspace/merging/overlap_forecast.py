"""Forecast overlaps: which branches changed the same files, and which of them would conflict.

Each pair gets a trial merge, because two branches can conflict without a common file, or change the same file
without a conflict. The forecast changes nothing and recommends nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from msgspec import Struct, field, structs

from ..git.repository import GitLocation, call_git, read_git_output
from ..git.revision import branch_tip, contains_commit, decode_path, resolve_location
from ..git.snapshot import resolve_commit
from .trial_merge import Conflict, ConflictingMerge, MergeOutcome, MergeSide, try_merges


class FileChange(Struct, frozen=True, kw_only=True):
    """The changes to one file; `was` is its previous name if it was renamed."""

    path: str
    added: int = 0
    removed: int = 0
    was: str | None = None
    is_binary: bool = field(name="binary", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchChanges:
    """The changes on a branch: files, line counts, and commits, oldest first."""

    files: tuple[FileChange, ...]
    added: int
    removed: int
    commits: tuple[str, ...]

    @property
    def all_paths(self) -> frozenset[str]:
        """The paths of all changed files; for a renamed file, both paths."""
        return frozenset(name for file in self.files for name in (file.path, file.was) if name is not None)


class Overlap(Struct, frozen=True, kw_only=True):
    """The files that both sides changed, and the conflicts between the sides.

    The sides are two branches, or a branch and the target. If one side is based on a third branch and the conflicts
    come from that branch, `through` is the name of the third branch; otherwise it is None. `is_in` says whether the
    target already contains the branch; for two branches, it is always False.
    """

    first: str
    second: str
    files: tuple[str, ...]
    conflicts: tuple[Conflict, ...]
    merges: bool
    through: str | None = None
    is_in: bool = False

    @property
    def conflict_files(self) -> tuple[str, ...]:
        """The files that conflict, without duplicates."""
        return tuple(dict.fromkeys(file for clash in self.conflicts for file in clash.files))


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The overlaps and conflicts to expect when these branches are merged.

    `pairs` contains the pairs of branches that changed the same files or would conflict. `onto_target` contains the
    overlap of every branch with the target.
    """

    onto: str
    changes: Mapping[str, BranchChanges]
    pairs: tuple[Overlap, ...]
    onto_target: tuple[Overlap, ...]


async def read_branch_changes(repo: GitLocation, base: str, branch: str) -> BranchChanges:
    """Return the changes on `branch` since it diverged from `base`, or its whole content if they share no history."""
    place = resolve_location(repo)
    return await read_commit_changes(place, await resolve_commit(place, base), await branch_tip(place, branch))


async def read_commit_changes(repo: GitLocation, base: str, commit: str) -> BranchChanges:
    """Return the changes in `commit` since it diverged from `base`, or its whole content if they share no history."""
    met = await call_git(repo, "merge-base", base, commit)
    if met.code == 0:
        begin = met.out.decode().split()[0]
        listed = await read_git_output(repo, "rev-list", "--reverse", f"{begin}..{commit}")
    else:
        begin = await read_git_output(repo, "hash-object", "-t", "tree", "--stdin", stdin=b"")  # the empty tree
        listed = await read_git_output(repo, "rev-list", "--reverse", commit)
    counted = await read_git_output(repo, "diff-tree", "-r", "-M", "--numstat", "-z", begin, commit)
    files = tuple(_parse_numstat(os.fsencode(counted)))
    return BranchChanges(
        files=files,
        added=sum(file.added for file in files),
        removed=sum(file.removed for file in files),
        commits=tuple(listed.split()),
    )


async def forecast_merges(
    repo: GitLocation, branches: Mapping[str, str], *, onto: str, parts: Mapping[str, str] | None = None
) -> Forecast:
    """Try to merge the branches with each other and with the branch `onto`. `branches` maps branches to their bases.

    If only some of a branch's changes are to be merged, `parts` maps the branch to a commit with just those changes.
    """
    place = resolve_location(repo)
    commits = parts or {}
    target = MergeSide(name=onto, commit=await branch_tip(place, onto))
    sides = [
        MergeSide(name=branch, commit=commits.get(branch) or await branch_tip(place, branch)) for branch in branches
    ]
    bases = {side.name: await resolve_commit(place, branches[side.name]) for side in sides}
    changes = {side.name: await read_commit_changes(place, bases[side.name], side.commit) for side in sides}
    pairs = list(combinations(sides, 2))
    tried = iter(await try_merges(place, [*pairs, *((target, side) for side in sides)]))
    between = [
        _make_overlap(one, two, changes[one.name].all_paths & changes[two.name].all_paths, next(tried))
        for one, two in pairs
    ]
    onto_target = []
    for side in sides:
        meanwhile = await read_commit_changes(place, side.commit, target.commit)
        overlap = _make_overlap(side, target, changes[side.name].all_paths & meanwhile.all_paths, next(tried))
        onto_target.append(structs.replace(overlap, is_in=await contains_commit(place, target.commit, side.commit)))
    below = {
        name: [other for other, change in changes.items() if other != name and base in change.commits]
        for name, base in bases.items()
    }
    clashes = {frozenset((one.first, one.second)): one for one in (*between, *onto_target) if not one.merges}
    return Forecast(
        onto=onto,
        changes=changes,
        pairs=tuple(_trace_conflict_origin(one, clashes, below) for one in between if one.files or not one.merges),
        onto_target=tuple(_trace_conflict_origin(one, clashes, below) for one in onto_target),
    )


def _trace_conflict_origin(
    one: Overlap, clashes: Mapping[frozenset[str], Overlap], below: Mapping[str, Sequence[str]]
) -> Overlap:
    """Return the overlap, with `through` set if its conflicts come from a third branch.

    `through` is the name of the third branch, which one of the two overlapping branches is based on.
    """
    if one.merges:
        return one
    for built, other in ((one.first, one.second), (one.second, one.first)):
        for earlier in below.get(built, ()):
            same = clashes.get(frozenset((earlier, other)))
            if same is not None and set(one.conflict_files) <= set(same.conflict_files):
                return structs.replace(one, through=_trace_conflict_origin(same, clashes, below).through or earlier)
    return one


def _make_overlap(first: MergeSide, second: MergeSide, files: frozenset[str], outcome: MergeOutcome) -> Overlap:
    conflicts = outcome.conflicts if isinstance(outcome, ConflictingMerge) else ()
    return Overlap(
        first=first.name,
        second=second.name,
        files=tuple(sorted(files)),
        conflicts=conflicts,
        merges=not isinstance(outcome, ConflictingMerge),
    )


def _parse_numstat(numstat: bytes) -> Iterator[FileChange]:
    """Parse the output of `--numstat -z`. For a renamed file, the name is empty, and the old and new names follow."""
    words = iter(numstat.split(b"\0"))
    while word := next(words, b""):
        added, removed, name = word.split(b"\t", 2)
        was = None if name else decode_path(next(words))
        path = decode_path(name or next(words))
        if is_binary := added == b"-":
            added = removed = b"0"
        yield FileChange(path=path, added=int(added), removed=int(removed), was=was, is_binary=is_binary)
