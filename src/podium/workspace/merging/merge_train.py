"""The merge train: branches, one after another, onto a new integration branch, each checked where it stands.

A branch that clashes or fails its check is left out, and so are those that build on it; the others go
on. No checkout of a person's is touched, and the target does not move: that is for `fast_forward`, on
a person's word. Until the integration branch is made, nothing refers to what was built, so that a
train that breaks off leaves no trace and can simply be run again.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...values.errors import Mistake, OutsideFailed
from ...values.plain_text import escape_unprintable, truncate_text
from ..git.repository import Checkout, GitLocation, Repository, call_git
from ..git.revision import HEADS, SHORT, branch_tip, contains_commit, resolve_location, resolve_tree, tips
from ..git.snapshot import temporary_checkout, write_commit
from .resolution_commit import find_resolution_starts, find_unresolved_files
from .trial_merge import ConflictingMerge, MergeSide, format_conflict_excerpt, try_merge

LINES_KEPT = 40
LONGEST_OUTPUT = 8 * 1024
MOST_NAMES = 1000

Reason = Literal["conflict", "unresolved", "check", "dependency", "moved", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainBranch:
    """A branch that wants to go along: the commit that was looked at, and the branches that it builds on."""

    branch: str
    commit: str
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What came of the checks; where they failed, the command that did and what it printed."""

    passed: bool
    command: str = ""
    output: str = ""


Check = Callable[[Path], Awaitable[CheckResult]]
"""Checks what stands in a folder. It runs what workers wrote, so that it is for the caller to fence it in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedBranch:
    """A branch that is in: the commit of the train that has it, and the tree that was checked."""

    branch: str
    commit: str
    tree: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutBranch:
    """A branch that is not in, and why.

    `onto` is the commit that it was tried on, `files` are those that clash or in which marks of a clash are
    left, and `output` is what the check printed last, or both sides of what clashes.
    """

    branch: str
    commit: str
    reason: Reason
    why: str
    onto: str
    files: tuple[str, ...] = ()
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Train:
    """What came of it. `ref` is the integration branch, or None where no branch is in.

    `base` is the commit of the target that it began with, `commit` and `tree` what it ends with.
    """

    target: str
    base: str
    commit: str
    tree: str
    ref: str | None
    coupled: tuple[MergedBranch, ...]
    left_out: tuple[LeftOutBranch, ...]


async def train(
    repo: GitLocation, branches: Sequence[TrainBranch], *, onto: str, integration: str, check: Check
) -> Train:
    """Merge the cars, in the order of what they build on, onto a new branch that begins where `onto` is.

    Where a branch of the name `integration` exists, the new one gets a number.
    """
    place = resolve_location(repo)
    ordered = sort_by_dependency(branches)
    await _must_be_branch_name(place, integration)
    base = await branch_tip(place, onto)
    building = _TrainBuilder(place, check, MergeSide(name=onto, commit=base))
    await building.look_up_tips(ordered)
    for train_branch in ordered:
        await building.add_branch(train_branch)
    ref = await _create_branch(place, integration, building.head) if building.coupled else None
    return Train(
        target=onto,
        base=base,
        commit=building.head,
        tree=await resolve_tree(place, building.head),
        ref=ref,
        coupled=tuple(building.coupled),
        left_out=tuple(building.left_out),
    )


def sort_by_dependency(branches: Sequence[TrainBranch]) -> list[TrainBranch]:
    """The cars in the order given, each moved behind those that it builds on. Raises Mistake for a cycle."""
    waiting = {train_branch.branch: train_branch for train_branch in branches}
    if len(waiting) < len(branches):
        twice = next(
            train_branch.branch
            for train_branch in branches
            if sum(train_branch.branch == other.branch for other in branches) > 1
        )
        raise Mistake(f"the branch {escape_unprintable(twice)} stands in the train twice; once would be right")
    ordered: list[TrainBranch] = []
    while waiting:
        ready = next(
            (train_branch for train_branch in waiting.values() if waiting.keys().isdisjoint(train_branch.after)), None
        )
        if ready is None:
            circle = " → ".join(escape_unprintable(branch) for branch in _find_cycle(waiting))
            raise Mistake(f"these branches wait for each other: {circle}; take one of the dependencies away")
        ordered.append(waiting.pop(ready.branch))
    return ordered


def _find_cycle(waiting: Mapping[str, TrainBranch]) -> list[str]:
    """One way round, in which every car waits for the next."""
    way = [next(iter(waiting))]
    while True:
        following = next(branch for branch in waiting[way[-1]].after if branch in waiting)
        if following in way:
            return [*way[way.index(following) :], following]
        way.append(following)


class _TrainBuilder:
    """A train that is being put together."""

    def __init__(self, place: Repository | Checkout, check: Check, target: MergeSide) -> None:
        self._place = place
        self._check = check
        self._target = target
        self._tips: dict[str, str] = {}
        self.head = target.commit
        self.coupled: list[MergedBranch] = []
        self.left_out: list[LeftOutBranch] = []

    async def look_up_tips(self, branches: Sequence[TrainBranch]) -> None:
        """Find where the branches are, and those that they build on, once for the whole train."""
        self._tips = await tips(
            self._place, {name for train_branch in branches for name in (train_branch.branch, *train_branch.after)}
        )

    async def add_branch(self, train_branch: TrainBranch) -> None:
        """Couple a car, or leave it out and say why."""
        left_out = await self._find_obstacle(train_branch) or await self._merge_branch(train_branch)
        if left_out is not None:
            self.left_out.append(left_out)

    async def _find_obstacle(self, train_branch: TrainBranch) -> LeftOutBranch | None:
        """Why a car cannot even be tried."""
        now = self._tips.get(train_branch.branch)
        if now is None:
            return self._leave_out(
                train_branch, "missing", f"there is no branch {escape_unprintable(train_branch.branch)}"
            )
        if now != train_branch.commit:
            moved = f"was looked at as {train_branch.commit[:SHORT]} and is at {now[:SHORT]} by now; look at it again"
            return self._leave_out(train_branch, "moved", f"{escape_unprintable(train_branch.branch)} {moved}")
        for earlier in train_branch.after:
            if lacking := await self._describe_missing_dependency(earlier):
                return self._leave_out(
                    train_branch, "dependency", f"it builds on {escape_unprintable(earlier)}, which {lacking}"
                )
        for start in await find_resolution_starts(self._place, train_branch.commit, beyond=self.head):
            if files := await find_unresolved_files(self._place, train_branch.commit, start):
                return self._leave_out(
                    train_branch,
                    "unresolved",
                    "marks of a conflict are left in it, which has to be resolved first",
                    files=files,
                )
        return None

    async def _describe_missing_dependency(self, earlier: str) -> str:
        """Why what a car builds on is not there; nothing where it is, or where its branch is gone by now."""
        if any(one.branch == earlier for one in self.coupled):
            return ""
        if any(one.branch == earlier for one in self.left_out):
            return "was left out"
        commit = self._tips.get(earlier)
        # Merged some time ago and cleaned up: there is nothing left to wait for.
        if commit is None or await contains_commit(self._place, self._target.commit, commit):
            return ""
        return f"is neither in this train nor in {escape_unprintable(self._target.name)}; merge it, too"

    async def _merge_branch(self, train_branch: TrainBranch) -> LeftOutBranch | None:
        """Merge a car onto the train as it is, and keep that if the check passes."""
        if await contains_commit(self._place, self.head, train_branch.commit):
            self.coupled.append(
                MergedBranch(
                    branch=train_branch.branch, commit=self.head, tree=await resolve_tree(self._place, self.head)
                )
            )
            return None
        ours = MergeSide(name=describe_merged(self._target.name, self.coupled), commit=self.head)
        theirs = MergeSide(name=train_branch.branch, commit=train_branch.commit)
        outcome = await try_merge(self._place, ours, theirs)
        if isinstance(outcome, ConflictingMerge):
            return await leave_out_conflict(self._place, outcome, ours, theirs)
        message = f"Merge branch '{train_branch.branch}'"
        commit = await write_commit(self._place, outcome.tree, [self.head, train_branch.commit], message)
        async with temporary_checkout(self._place, commit) as checkout:
            result = await self._check(checkout.path)
        if not result.passed:
            failed = escape_unprintable(result.command) or "the check"
            return self._leave_out(train_branch, "check", f"{failed} fails with it", output=tail_output(result.output))
        self.head = commit
        self.coupled.append(MergedBranch(branch=train_branch.branch, commit=commit, tree=outcome.tree))
        return None

    def _leave_out(
        self, train_branch: TrainBranch, reason: Reason, why: str, *, files: tuple[str, ...] = (), output: str = ""
    ) -> LeftOutBranch:
        return LeftOutBranch(
            branch=train_branch.branch,
            commit=train_branch.commit,
            reason=reason,
            why=why,
            onto=self.head,
            files=files,
            output=output,
        )


async def leave_out_conflict(
    place: GitLocation, clash: ConflictingMerge, ours: MergeSide, theirs: MergeSide
) -> LeftOutBranch:
    """The branch of `theirs`, left out because it clashes with `ours`."""
    why = "; ".join(escape_unprintable(one.text) for one in clash.conflicts) or "it clashes with the train"
    return LeftOutBranch(
        branch=theirs.name,
        commit=theirs.commit,
        reason="conflict",
        why=truncate_text(why, 1000),
        onto=ours.commit,
        files=clash.files,
        output=await format_conflict_excerpt(place, clash, ours, theirs),
    )


def describe_merged(target: str, coupled: Sequence[MergedBranch]) -> str:
    """What a car is merged onto, in words."""
    return " + ".join((target, *(one.branch for one in coupled)))


def tail_output(output: str) -> str:
    """The end of what a command printed."""
    return "\n".join(output.rstrip()[-LONGEST_OUTPUT:].splitlines()[-LINES_KEPT:])


def format_conflict(left_out: LeftOutBranch) -> str:
    """What someone needs to resolve a conflict: the commits, the files, and both sides of what clashes."""
    files = "\n".join(f"- {escape_unprintable(file)}" for file in left_out.files) or "- none in particular"
    told = (
        f"Merging {escape_unprintable(left_out.branch)} (commit {left_out.commit}) onto commit "
        f"{left_out.onto} clashes: "
        f"{left_out.why}\n\nFiles:\n{files}"
    )
    if not left_out.output:
        return told
    return f"{told}\n\nBoth sides, the train's first:\n{fence_output(left_out.output)}"


def fence_output(output: str) -> str:
    """What is quoted in a text for an agent, between marks that are not in it."""
    fence = "`" * max(3, *(len(run) + 1 for run in ("", *re.findall("`+", output))))
    return f"{fence}\n{output}\n{fence}"


async def _must_be_branch_name(place: GitLocation, name: str) -> None:
    done = await call_git(place, "check-ref-format", "--branch", name) if name.isprintable() else None
    if done is None or done.code != 0 or done.out.decode().strip() != name:
        raise Mistake(
            f"{escape_unprintable(name)!r} cannot be the name of the integration branch; one like "
            "podium/merge would work"
        )


async def _create_branch(place: GitLocation, name: str, commit: str) -> str:
    """The ref of a new branch at a commit; never one that exists."""
    for number in range(1, MOST_NAMES):
        numbered = name if number == 1 else f"{name}-{number}"
        if numbered in await tips(place, [numbered]):
            continue
        # An empty old value: git makes the ref only if there is none at that moment.
        done = await call_git(place, "update-ref", "-m", "merge train", HEADS + numbered, commit, "")
        if done.code == 0:
            return HEADS + numbered
        if numbered not in await tips(place, [numbered]):
            raise Mistake(
                f"the branch {escape_unprintable(numbered)} cannot be made: "
                f"{escape_unprintable(truncate_text(done.err, 300))}; try another name"
            )
    raise OutsideFailed(
        f"there are {MOST_NAMES} branches like {escape_unprintable(name)} already; remove those that are done"
    )
