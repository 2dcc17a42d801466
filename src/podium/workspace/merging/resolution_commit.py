"""Commit a merge that conflicts or fails a check, so that later commits can resolve it, and find unresolved files.

The commit contains git's merge result, including conflict markers, and has both sides as parents. A branch that is
built on this commit therefore contains both sides, and its history permanently shows the conflicts. Other modules
decide who resolves the conflicts. They are resolved on an ordinary branch, which a merge train leaves out as long as
the branch contains conflict markers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from ...values.errors import Mistake, OutsideFailed
from ...values.plain_text import escape_unprintable, truncate_text
from ..git.repository import GitLocation, call_git, read_git_output, split_nul_paths
from ..git.revision import contains_commit, decode_path
from ..git.snapshot import write_commit
from .trial_merge import LONGEST, CleanMerge, ConflictingMerge, MergeSide, try_merge

NOTE = "Podium-Conflict"
"""The commit message trailer that marks the starting commit of a conflict resolution."""

MARKS = r"^(<{7}|[|]{7}|={7}|>{7})([[:space:]]|$)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolutionStart:
    """The starting commit of a conflict resolution, and the two commits that it merges."""

    commit: str
    ours: str
    theirs: str


async def commit_resolution_start(
    place: GitLocation, tried: ConflictingMerge | CleanMerge, ours: MergeSide, theirs: MergeSide
) -> ResolutionStart:
    """Commit a merge that conflicts or fails a check, without creating a ref to the commit.

    Raise Mistake if git produced no merge result.
    """
    if not tried.tree:
        why = (
            "; ".join(escape_unprintable(one.text) for one in tried.conflicts)
            if isinstance(tried, ConflictingMerge)
            else "git produced no merge result"
        )
        raise Mistake(
            f"no worker can resolve the merge of {escape_unprintable(theirs.name)}: {why}; merge the branch manually"
        )
    what = "with its conflicts" if isinstance(tried, ConflictingMerge) else "with a failing check"
    message = f"Merge branch '{theirs.name}' {what}\n\n{NOTE}: to be resolved"
    commit = await write_commit(place, tried.tree, [ours.commit, theirs.commit], message)
    return ResolutionStart(commit=commit, ours=ours.commit, theirs=theirs.commit)


async def find_resolution_starts(place: GitLocation, commit: str, *, beyond: str) -> list[ResolutionStart]:
    """Return the starting commits of conflict resolutions that are in the history of `commit` but not of `beyond`."""
    return await _list_resolution_starts(place, commit, f"^{beyond}")


async def filter_resolution_starts(place: GitLocation, commits: Iterable[str]) -> dict[str, ResolutionStart]:
    """Return the conflict resolutions that start at one of `commits`, keyed by the id of the starting commit.

    Commits that no longer exist are ignored.
    """
    wanted = list(dict.fromkeys(commits))
    found = await _list_resolution_starts(place, "--ignore-missing", "--no-walk=unsorted", *wanted) if wanted else []
    return {one.commit: one for one in found}


async def _list_resolution_starts(place: GitLocation, *which: str) -> list[ResolutionStart]:
    listed = await read_git_output(
        place, "rev-list", "--min-parents=2", "--max-parents=2", "--parents", f"--grep=^{NOTE}: ", *which
    )
    found = (line.split() for line in listed.splitlines())
    return [ResolutionStart(commit=commit, ours=ours, theirs=theirs) for commit, ours, theirs in found]


async def is_resolution_of(place: GitLocation, start: ResolutionStart, commit: str) -> bool:
    """Return whether the conflict resolution merges `commit`: `start.theirs` contains it, but `start.ours` does not."""
    return await contains_commit(place, start.theirs, commit) and not await contains_commit(place, start.ours, commit)


async def find_marked_files(place: GitLocation, commit: str, start: ResolutionStart) -> frozenset[str]:
    """Return the files in a commit that have a conflict marker with the commit id of one of the sides."""
    return frozenset(await _count_matching_lines(place, commit, f"^[<>]+ ({start.ours}|{start.theirs})"))


async def find_unresolved_files(place: GitLocation, commit: str, start: ResolutionStart) -> tuple[str, ...]:
    """Return the unresolved files in a commit: those that have conflict markers or a temporary name from git.

    A marker with the commit id of one of the two sides counts in any file. Other markers count only in files that
    conflicted, and only if the file has more of them than both sides together, because a line of `=` can be a heading.
    """
    sides = f"({start.ours}|{start.theirs})"
    left = set(await find_marked_files(place, commit, start))
    listed = split_nul_paths(await read_git_output(place, "ls-tree", "-r", "-z", "--name-only", commit))
    left |= {decode_path(os.fsencode(name)) for name in listed if re.search(rf"~{sides}(_\d+)?(/|$)", name)}
    tried = await try_merge(
        place, MergeSide(name="ours", commit=start.ours), MergeSide(name="theirs", commit=start.theirs)
    )
    clashed = frozenset(tried.files) if isinstance(tried, ConflictingMerge) else frozenset[str]()
    counts = await _count_matching_lines(place, commit, MARKS)
    if clashed & counts.keys() - left:
        before = [await _count_matching_lines(place, side, MARKS) for side in (start.ours, start.theirs)]
        left |= {file for file in clashed & counts.keys() if counts[file] > sum(one.get(file, 0) for one in before)}
    return tuple(sorted(left))


async def _count_matching_lines(place: GitLocation, commit: str, pattern: str) -> dict[str, int]:
    """Return the number of matching lines in each file of a commit; files without matches are omitted."""
    how = ("--text", "--no-textconv", "--no-recurse-submodules", "--full-name", "--no-color", "-z", "--count", "-E")
    done = await call_git(place, "grep", *how, "-e", pattern, commit, timeout=LONGEST)
    if done.code not in (0, 1) or (done.code == 1 and done.err):
        raise OutsideFailed(f"git grep failed: {escape_unprintable(truncate_text(done.err, 300))}")
    found = re.findall(rb"(.+?)\0(\d+)\n", done.out, re.DOTALL)
    return {decode_path(name.removeprefix(f"{commit}:".encode())): int(count) for name, count in found}
