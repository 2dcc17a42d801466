"""Trying a merge: whether two commits go together, the tree that comes out, and what clashes.

Nothing is touched. Git leaves loose objects that nothing refers to, and clears them away by itself.
What is done with the outcome is for others: `forecast` tells of it, `train` builds on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from ...values.errors import OutsideFailed
from ...values.plain_text import cut, plain
from ..git.repository import Place, git
from ..git.revision import path_text

AT_ONCE = 32
LONGEST = 300.0
FILES_SHOWN = 10
LINES_SHOWN = 60
LONGEST_LINE = 300

USAGE = 129
"""How git ends when it does not know an option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """One thing that stands in the way of a merge; `kind` is git's word for it, such as `rename/rename`."""

    kind: str
    files: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The two go together, and this tree comes out."""

    tree: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Clash:
    """The two do not go together; `tree` has marks where they clash, and is empty where there is none."""

    tree: str
    files: tuple[str, ...]
    conflicts: tuple[Conflict, ...]


Attempt = Merged | Clash


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A commit by the name that people know it by."""

    name: str
    commit: str


async def attempt(repo: Place, ours: Side, theirs: Side) -> Attempt:
    """What merging these two would bring."""
    return (await attempts(repo, [(ours, theirs)]))[0]


async def attempts(repo: Place, pairs: Sequence[tuple[Side, Side]]) -> list[Attempt]:
    """What merging each pair would bring, in their order."""
    tried: list[Attempt] = []
    remaining = iter(pairs)
    while some := list(islice(remaining, AT_ONCE)):
        tried += await _tried(repo, some)
    return tried


async def _tried(repo: Place, pairs: Sequence[tuple[Side, Side]]) -> list[Attempt]:
    """A few pairs, in one process."""
    asked = "".join(f"{ours.commit} {theirs.commit}\n" for ours, theirs in pairs)
    done = await git(repo, "merge-tree", "--stdin", stdin=asked.encode(), timeout=LONGEST)
    if done.code == 0:
        return [named(one, *pair) for one, pair in zip(outcomes(done.out), pairs, strict=True)]
    if len(pairs) > 1:  # git gives up at the first pair that has nothing in common
        return [one for pair in pairs for one in await _tried(repo, [pair])]
    if "unrelated histories" in done.err:
        ours, theirs = pairs[0]
        text = f"{ours.name} and {theirs.name} have no commit in common"
        return [Clash(tree="", files=(), conflicts=(Conflict(kind="unrelated histories", files=(), text=text),))]
    if done.code == USAGE:
        raise OutsideFailed("merging without a checkout needs git 2.39 or later; install a newer git")
    raise OutsideFailed(f"git merge-tree failed: {plain(cut(done.err, 300))}")


def outcomes(out: bytes) -> Iterator[Attempt]:
    """What `git merge-tree --stdin` wrote."""
    words = iter(out.split(b"\0"))
    while status := next(words, b""):
        tree = next(words).decode()
        if status == b"1":
            next(words)  # the end of this outcome
            yield Merged(tree=tree)
            continue
        stages = list(iter(words.__next__, b""))
        files = dict.fromkeys(path_text(stage.partition(b"\t")[2]) for stage in stages)
        yield Clash(tree=tree, files=tuple(files), conflicts=tuple(_conflicts(words)))


def _conflicts(words: Iterator[bytes]) -> Iterator[Conflict]:
    """The messages of one outcome that are about conflicts."""
    while count := next(words):
        files = tuple(path_text(next(words)) for _ in range(int(count)))
        kind, text = next(words).decode(), next(words).decode(errors="backslashreplace").strip()
        if about := re.match(r"CONFLICT \((.*)\)$", kind):
            yield Conflict(kind=about[1], files=files, text=text)


def named(outcome: Attempt, ours: Side, theirs: Side) -> Attempt:
    """The outcome in words that name the two by their names, since git was told their ids."""
    if isinstance(outcome, Merged):
        return outcome
    told = tuple(
        Conflict(kind=one.kind, files=one.files, text=with_names(one.text, ours, theirs)) for one in outcome.conflicts
    )
    return Clash(tree=outcome.tree, files=outcome.files, conflicts=told)


def with_names(text: str, *sides: Side) -> str:
    """`text` with names where git wrote ids."""
    for side in sides:
        text = text.replace(side.commit, side.name)
    return text


async def excerpt(repo: Place, clash: Clash, ours: Side, theirs: Side) -> str:
    """Both sides of what clashes, file by file, as git marks them; cut where it is long."""
    parts: list[str] = []
    for file in clash.files[:FILES_SHOWN] if clash.tree else ():
        if marked := await _marked(repo, clash.tree, file):
            parts.append(f"{plain(file)}\n{with_names(marked, ours, theirs)}")
    if len(clash.files) > FILES_SHOWN:
        parts.append(f"and {len(clash.files) - FILES_SHOWN} more files")
    return "\n\n".join(parts)


async def _marked(repo: Place, tree: str, file: str) -> str:
    """The lines between the marks of one file; nothing where it has none, or is too large to show."""
    try:
        done = await git(repo, "cat-file", "blob", f"{tree}:{file}")
    except OutsideFailed:
        return ""
    if done.code != 0 or b"\0" in done.out:
        return ""
    kept = list(islice(_between_marks(done.out.decode(errors="backslashreplace").splitlines()), LINES_SHOWN + 1))
    if len(kept) > LINES_SHOWN:
        kept[LINES_SHOWN:] = ["…"]
    return "\n".join(cut(line, LONGEST_LINE) for line in kept)


def _between_marks(lines: Sequence[str]) -> Iterator[str]:
    inside = False
    for number, line in enumerate(lines, start=1):
        if line.startswith("<<<<<<< "):
            inside = True
            yield f"line {number}:"
        if inside:
            yield line
        if line.startswith(">>>>>>> "):
            inside = False
