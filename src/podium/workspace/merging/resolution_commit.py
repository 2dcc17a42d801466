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
from ...values.plain_text import cut, plain
from ..git.repository import Place, git, git_output, names
from ..git.revision import contains, path_text
from ..git.snapshot import committed
from .trial_merge import LONGEST, Clash, Merged, Side, attempt

NOTE = "Podium-Conflict"
"""How the message of such a commit says what it is."""

MARKS = r"^(<{7}|[|]{7}|={7}|>{7})([[:space:]]|$)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The commit that a resolution begins with, and the two that clash."""

    commit: str
    ours: str
    theirs: str


async def begin(place: Place, tried: Clash | Merged, ours: Side, theirs: Side) -> Beginning:
    """Lay a merge that clashes, or fails a check, down as a commit, which no ref names yet.

    Raises Mistake where git made nothing of it.
    """
    if not tried.tree:
        why = "; ".join(plain(one.text) for one in tried.conflicts) if isinstance(tried, Clash) else "it is empty"
        raise Mistake(f"{plain(theirs.name)} cannot be given to anybody to resolve: {why}; bring them together by hand")
    what = "with its conflicts" if isinstance(tried, Clash) else "with a check that fails"
    message = f"Merge branch '{theirs.name}' {what}\n\n{NOTE}: to be resolved"
    commit = await committed(place, tried.tree, [ours.commit, theirs.commit], message)
    return Beginning(commit=commit, ours=ours.commit, theirs=theirs.commit)


async def begun_in(place: Place, commit: str, *, beyond: str) -> list[Beginning]:
    """The resolutions that began in the history of a commit and not in that of `beyond`."""
    return await _noted(place, commit, f"^{beyond}")


async def begun_at(place: Place, commits: Iterable[str]) -> dict[str, Beginning]:
    """Those of the commits that a resolution begins with. What is no commit any more is none of them."""
    wanted = list(dict.fromkeys(commits))
    found = await _noted(place, "--ignore-missing", "--no-walk=unsorted", *wanted) if wanted else []
    return {one.commit: one for one in found}


async def _noted(place: Place, *which: str) -> list[Beginning]:
    listed = await git_output(
        place, "rev-list", "--min-parents=2", "--max-parents=2", "--parents", f"--grep=^{NOTE}: ", *which
    )
    found = (line.split() for line in listed.splitlines())
    return [Beginning(commit=commit, ours=ours, theirs=theirs) for commit, ours, theirs in found]


async def settles(place: Place, beginning: Beginning, commit: str) -> bool:
    """Whether a resolution is about a commit: it came in with the side that was to be merged, and not before."""
    return await contains(place, beginning.theirs, commit) and not await contains(place, beginning.ours, commit)


async def marked(place: Place, commit: str, beginning: Beginning) -> frozenset[str]:
    """The files of a commit in which stand marks that name one of the two sides."""
    return frozenset(await _counted(place, commit, f"^[<>]+ ({beginning.ours}|{beginning.theirs})"))


async def unresolved(place: Place, commit: str, beginning: Beginning) -> tuple[str, ...]:
    """The files of a commit in which something of the clash is left: marks, or a name that git gave meanwhile.

    A mark that names a side gives a file away wherever it is. Marks that name none count in the files that
    clashed, and only those that neither side had: what looks like one may be a heading.
    """
    sides = f"({beginning.ours}|{beginning.theirs})"
    left = set(await marked(place, commit, beginning))
    listed = names(await git_output(place, "ls-tree", "-r", "-z", "--name-only", commit))
    left |= {path_text(os.fsencode(name)) for name in listed if re.search(rf"~{sides}(_\d+)?(/|$)", name)}
    tried = await attempt(place, Side(name="ours", commit=beginning.ours), Side(name="theirs", commit=beginning.theirs))
    clashed = frozenset(tried.files) if isinstance(tried, Clash) else frozenset[str]()
    counts = await _counted(place, commit, MARKS)
    if clashed & counts.keys() - left:
        before = [await _counted(place, side, MARKS) for side in (beginning.ours, beginning.theirs)]
        left |= {file for file in clashed & counts.keys() if counts[file] > sum(one.get(file, 0) for one in before)}
    return tuple(sorted(left))


async def _counted(place: Place, commit: str, pattern: str) -> dict[str, int]:
    """How many lines of each file of a commit are such; files without are left out."""
    how = ("--text", "--no-textconv", "--no-recurse-submodules", "--full-name", "--no-color", "-z", "--count", "-E")
    done = await git(place, "grep", *how, "-e", pattern, commit, timeout=LONGEST)
    if done.code not in (0, 1) or (done.code == 1 and done.err):
        raise OutsideFailed(f"git grep failed: {plain(cut(done.err, 300))}")
    found = re.findall(rb"(.+?)\0(\d+)\n", done.out, re.DOTALL)
    return {path_text(name.removeprefix(f"{commit}:".encode())): int(count) for name, count in found}
