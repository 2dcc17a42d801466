"""A resolution: a merge that clashes or fails a check, laid down as a commit to work on, and what is left of it then.

The commit holds what git made of the merge, marks included, and both sides are its parents. So whatever is
built on it contains both, and its history tells what clashed, to everybody and for good. Who resolves it is
for others to say; what comes out is a branch like any other, that no train takes while a mark is left in it.
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
"""How the message of such a commit says what it is."""

MARKS = r"^(<{7}|[|]{7}|={7}|>{7})([[:space:]]|$)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolutionStart:
    """The commit that a resolution begins with, and the two that clash."""

    commit: str
    ours: str
    theirs: str


async def commit_resolution_start(
    place: GitLocation, tried: ConflictingMerge | CleanMerge, ours: MergeSide, theirs: MergeSide
) -> ResolutionStart:
    """Lay a merge that clashes, or fails a check, down as a commit, which no ref names yet.

    Raises Mistake where git made nothing of it.
    """
    if not tried.tree:
        why = (
            "; ".join(escape_unprintable(one.text) for one in tried.conflicts)
            if isinstance(tried, ConflictingMerge)
            else "it is empty"
        )
        raise Mistake(
            f"{escape_unprintable(theirs.name)} cannot be given to anybody to resolve: {why}; bring "
            "them together by hand"
        )
    what = "with its conflicts" if isinstance(tried, ConflictingMerge) else "with a check that fails"
    message = f"Merge branch '{theirs.name}' {what}\n\n{NOTE}: to be resolved"
    commit = await write_commit(place, tried.tree, [ours.commit, theirs.commit], message)
    return ResolutionStart(commit=commit, ours=ours.commit, theirs=theirs.commit)


async def find_resolution_starts(place: GitLocation, commit: str, *, beyond: str) -> list[ResolutionStart]:
    """The resolutions that began in the history of a commit and not in that of `beyond`."""
    return await _list_resolution_starts(place, commit, f"^{beyond}")


async def filter_resolution_starts(place: GitLocation, commits: Iterable[str]) -> dict[str, ResolutionStart]:
    """Those of the commits that a resolution begins with. What is no commit any more is none of them."""
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
    """Whether a resolution is about a commit: it came in with the side that was to be merged, and not before."""
    return await contains_commit(place, start.theirs, commit) and not await contains_commit(place, start.ours, commit)


async def find_marked_files(place: GitLocation, commit: str, start: ResolutionStart) -> frozenset[str]:
    """The files of a commit in which stand marks that name one of the two sides."""
    return frozenset(await _count_matching_lines(place, commit, f"^[<>]+ ({start.ours}|{start.theirs})"))


async def find_unresolved_files(place: GitLocation, commit: str, start: ResolutionStart) -> tuple[str, ...]:
    """The files of a commit in which something of the clash is left: marks, or a name that git gave meanwhile.

    A mark that names a side gives a file away wherever it is. Marks that name none count in the files that
    clashed, and only those that neither side had: what looks like one may be a heading.
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
    """How many lines of each file of a commit are such; files without are left out."""
    how = ("--text", "--no-textconv", "--no-recurse-submodules", "--full-name", "--no-color", "-z", "--count", "-E")
    done = await call_git(place, "grep", *how, "-e", pattern, commit, timeout=LONGEST)
    if done.code not in (0, 1) or (done.code == 1 and done.err):
        raise OutsideFailed(f"git grep failed: {escape_unprintable(truncate_text(done.err, 300))}")
    found = re.findall(rb"(.+?)\0(\d+)\n", done.out, re.DOTALL)
    return {decode_path(name.removeprefix(f"{commit}:".encode())): int(count) for name, count in found}
