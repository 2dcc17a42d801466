"""Run a merge train: merge branches one after another onto a new integration branch, and check each merge.

A branch that conflicts or fails its check is left out, and so are the branches that build on it; the others are
merged. The user's checkouts do not change, and the target does not move until a person approves and `fast_forward`
moves it. Until the integration branch is created, no ref points to the merges, so an interrupted train leaves no
branch behind and can simply be run again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from ...values.actor import Actor
from ...values.errors import Mistake, OutsideFailed
from ...values.plain_text import escape_unprintable, fence_output, truncate_text
from ...values.plan import find_cycle
from ..git.branch import find_shell_character
from ..git.repository import Checkout, GitLocation, Repository, call_git
from ..git.revision import HEADS, SHORT, branch_tip, branch_tips, contains_commit, resolve_location, resolve_tree
from ..git.snapshot import temporary_checkout, write_commit
from .move_note import describe_author
from .resolution_commit import find_resolution_starts, find_unresolved_files
from .trial_merge import ConflictingMerge, MergeSide, format_conflict_excerpt, link_records, renumber_records, try_merge

LINES_KEPT = 40
LONGEST_OUTPUT = 8 * 1024
MOST_NAMES = 1000

Reason = Literal["conflict", "unresolved", "check", "dependency", "moved", "missing", "hook", "together"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainBranch:
    """A branch to merge, with the commit that was reviewed and the branches that it builds on.

    If only some of its changes are to be merged, `part` is a commit that contains just those changes.
    """

    branch: str
    commit: str
    after: tuple[str, ...] = ()
    part: str = ""

    @property
    def merged_commit(self) -> str:
        """The commit that is merged."""
        return self.part or self.commit


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of the checks. If a check failed, `command` is its command and `output` is its output.

    `checks` contains the names of the checks that ran and passed.
    """

    passed: bool
    command: str = ""
    output: str = ""
    checks: tuple[str, ...] = ()


Check = Callable[[Path], Awaitable[CheckResult]]
"""Checks the files in a folder. This runs code that workers wrote, so the caller must run it in a sandbox."""


Permit = Callable[[TrainBranch, str], Awaitable[str]]
"""Returns why a branch must not be merged onto a commit, or an empty string if it may be."""


class MergedBranch(Struct, frozen=True, kw_only=True):
    """A merged branch, with the commit in the train that contains it and the tree of that commit.

    `is_part` says whether only a part of the branch's changes was merged.
    """

    branch: str
    commit: str
    tree: str
    is_part: bool = False


class LeftOutBranch(Struct, frozen=True, kw_only=True):
    """A branch that was not merged, and the reason.

    `onto` was the head of the train at that point, and `files` lists the files with conflicts or remaining conflict
    markers. `output` is the end of the check's output, or both sides of the conflicts.
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
    """The result of a merge train. `ref` is the integration branch, or None if no branch was merged.

    `base` is the target's commit at the start; `commit` and `tree` are the result. `checks` contains the names of the
    checks that passed on exactly this tree, if any ran.
    """

    target: str
    base: str
    commit: str
    tree: str
    ref: str | None
    merged: tuple[MergedBranch, ...]
    left_out: tuple[LeftOutBranch, ...]
    checks: tuple[str, ...] = ()


async def build_train(
    repo: GitLocation,
    branches: Sequence[TrainBranch],
    *,
    onto: str,
    integration: str | None,
    check: Check,
    permit: Permit | None = None,
    can_be_deleted: bool = False,
    excluded: Mapping[str, str] | None = None,
    by: Actor | None = None,
) -> Train:
    """Merge the branches, each after the branches that it builds on, into a new branch that starts at `onto`.

    The name of the new branch is `integration`, with a number appended if a branch of that name exists. If
    `integration` is None, no branch points to the result, so git deletes it later unless it is pushed. A branch that
    no longer exists is left out or, if `can_be_deleted` is True, merged at the commit that was reviewed. `excluded`
    maps each branch that must be left out to the reason, such as a conflict in another repository. The reflog of the
    new branch names `by`, who asked for the merge.
    """
    place = resolve_location(repo)
    ordered = sort_by_dependency(branches)
    if integration is not None:
        await _must_be_branch_name(place, integration)
    base = await branch_tip(place, onto)
    building = _TrainBuilder(place, check, MergeSide(name=onto, commit=base), permit, excluded or {})
    await building.look_up_tips(ordered, can_be_deleted=can_be_deleted)
    for train_branch in ordered:
        await building.add_branch(train_branch)

    reason = describe_author("merge train", by)
    ref = await _create_branch(place, integration, building.head, reason) if integration and building.merged else None
    return Train(
        target=onto,
        base=base,
        commit=building.head,
        tree=await resolve_tree(place, building.head),
        ref=ref,
        merged=tuple(building.merged),
        left_out=tuple(building.left_out),
        checks=building.checks,
    )


def sort_by_dependency(branches: Sequence[TrainBranch]) -> list[TrainBranch]:
    """Return the branches in the given order, except that each follows the branches that it builds on.

    Raise Mistake if branches depend on each other, or if a branch is listed twice.
    """
    waiting = {train_branch.branch: train_branch for train_branch in branches}
    if len(waiting) < len(branches):
        twice = next(
            train_branch.branch
            for train_branch in branches
            if sum(train_branch.branch == other.branch for other in branches) > 1
        )
        raise Mistake(f"the branch {escape_unprintable(twice)} was given more than once; give each branch once")
    ordered: list[TrainBranch] = []
    while waiting:
        ready = next(
            (train_branch for train_branch in waiting.values() if waiting.keys().isdisjoint(train_branch.after)), None
        )
        if ready is None:
            cycle = find_cycle({name: train_branch.after for name, train_branch in waiting.items()})
            circle = " → ".join(map(escape_unprintable, cycle))
            raise Mistake(f"these branches depend on each other: {circle}; remove one of the dependencies")
        ordered.append(waiting.pop(ready.branch))
    return ordered


class _TrainBuilder:
    """A merge train under construction."""

    def __init__(
        self,
        place: Repository | Checkout,
        check: Check,
        target: MergeSide,
        permit: Permit | None,
        excluded: Mapping[str, str],
    ) -> None:
        self._place = place
        self._excluded = excluded
        self._check = check
        self._permit = permit
        self._target = target
        self._tips: dict[str, str] = {}
        self.head = target.commit
        self.merged: list[MergedBranch] = []
        self.left_out: list[LeftOutBranch] = []
        self.checks: tuple[str, ...] = ()
        """The checks that passed on the tree of the head."""
        self._on_target: CheckResult | None = None
        """The result of the checks on the target, if they had to run there."""

    async def look_up_tips(self, branches: Sequence[TrainBranch], *, can_be_deleted: bool) -> None:
        """Resolve the branches, and the branches that they build on, once for the whole train."""
        reviewed = {train_branch.branch: train_branch.commit for train_branch in branches} if can_be_deleted else {}
        self._tips = reviewed | await branch_tips(
            self._place, {name for train_branch in branches for name in (train_branch.branch, *train_branch.after)}
        )

    async def add_branch(self, train_branch: TrainBranch) -> None:
        """Merge a branch, or record why it is left out."""
        left_out = await self._find_obstacle(train_branch) or await self._merge_branch(train_branch)
        if left_out is not None:
            self.left_out.append(left_out)

    async def _find_obstacle(self, train_branch: TrainBranch) -> LeftOutBranch | None:
        """Check a branch before it is merged.

        If the branch must be left out, return the branch and the reason. Otherwise, return None.
        """
        now = self._tips.get(train_branch.branch)
        if now is None:
            return self._leave_out(
                train_branch, "missing", f"branch {escape_unprintable(train_branch.branch)} not found"
            )
        if now != train_branch.commit:
            moved = f"was reviewed at {train_branch.commit[:SHORT]} but is now at {now[:SHORT]}; review it again"
            return self._leave_out(train_branch, "moved", f"{escape_unprintable(train_branch.branch)} {moved}")
        if why := self._excluded.get(train_branch.branch):
            return self._leave_out(train_branch, "together", why)
        for earlier in train_branch.after:
            if lacking := await self._describe_missing_dependency(earlier):
                return self._leave_out(
                    train_branch, "dependency", f"it builds on {escape_unprintable(earlier)}, which {lacking}"
                )
        merged = train_branch.merged_commit
        for start in await find_resolution_starts(self._place, merged, beyond=self.head):
            if files := await find_unresolved_files(self._place, merged, start):
                return self._leave_out(
                    train_branch,
                    "unresolved",
                    "it still contains conflict markers; resolve the conflict first",
                    files=files,
                )
        if self._permit is not None and (why := await self._permit(train_branch, self.head)):
            return self._leave_out(train_branch, "hook", why)
        return None

    async def _describe_missing_dependency(self, earlier: str) -> str:
        """Return a clause that says why a dependency has not been merged.

        Return an empty string if the dependency has been merged or its branch no longer exists.
        """
        if any(one.branch == earlier and not one.is_part for one in self.merged):
            return ""
        if any(one.branch == earlier for one in self.left_out):
            return "was left out"
        commit = self._tips.get(earlier)
        # A branch that no longer exists was merged earlier and then deleted, so nothing is missing.
        if commit is None or await contains_commit(self._place, self._target.commit, commit):
            return ""
        return f"is neither in this train nor in {escape_unprintable(self._target.name)}; merge it too"

    async def _merge_branch(self, train_branch: TrainBranch) -> LeftOutBranch | None:
        """Merge a branch into the train and check the result. Return None on success.

        If the merge conflicts or the check fails, leave the branch out: return the branch and the reason.
        """
        branch, is_part = train_branch.branch, bool(train_branch.part)
        if await contains_commit(self._place, self.head, train_branch.merged_commit):
            tree = await resolve_tree(self._place, self.head)
            self.merged.append(MergedBranch(branch=branch, commit=self.head, tree=tree, is_part=is_part))
            return None
        ours = MergeSide(name=describe_merged(self._target.name, self.merged), commit=self.head)
        reviewed = MergeSide(name=branch, commit=train_branch.merged_commit)
        theirs = replace(reviewed, commit=await renumber_records(self._place, self.head, reviewed))
        outcome = await try_merge(self._place, ours, theirs)
        if isinstance(outcome, ConflictingMerge):
            left_out = await leave_out_conflict(self._place, outcome, ours, theirs)
            return structs.replace(left_out, commit=reviewed.commit)
        tree = await link_records(self._place, self.head, outcome.tree)
        message = f"Merge {'a part of ' if is_part else ''}branch '{branch}'"
        commit = await write_commit(self._place, tree, [self.head, theirs.commit], message)
        async with temporary_checkout(self._place, commit) as checkout:
            result = await self._check(checkout.path)
        if not result.passed:
            failed = escape_unprintable(result.command) or "the check"
            why = f"{failed} fails after the merge{await self._describe_red_target(result)}"
            return self._leave_out(train_branch, "check", why, output=tail_output(result.output))
        self.head, self.checks = commit, result.checks
        self.merged.append(MergedBranch(branch=branch, commit=commit, tree=tree, is_part=is_part))
        return None

    async def _describe_red_target(self, failed: CheckResult) -> str:
        """Return a clause that says that a failed check fails on the target, too, or an empty string."""
        if self.head != self._target.commit:
            return ""  # the checks passed on the head, which has other branches merged
        if self._on_target is None:
            async with temporary_checkout(self._place, self._target.commit) as checkout:
                self._on_target = await self._check(checkout.path)
        if self._on_target.passed or _get_check_name(self._on_target) != _get_check_name(failed):
            return ""
        return f"; it fails on {escape_unprintable(self._target.name)}, too; not from this branch"

    def _leave_out(
        self, train_branch: TrainBranch, reason: Reason, why: str, *, files: tuple[str, ...] = (), output: str = ""
    ) -> LeftOutBranch:
        return LeftOutBranch(
            branch=train_branch.branch,
            commit=train_branch.merged_commit,
            reason=reason,
            why=why,
            onto=self.head,
            files=files,
            output=output,
        )


async def leave_out_conflict(
    place: GitLocation, clash: ConflictingMerge, ours: MergeSide, theirs: MergeSide
) -> LeftOutBranch:
    """Return the record of the branch `theirs`, which is left out because it conflicts with `ours`."""
    why = "; ".join(escape_unprintable(one.text) for one in clash.conflicts) or "it conflicts with the train"
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
    """Return a name for the base of the next merge: the names of the target and of the branches merged so far."""
    return " + ".join((target, *(one.branch for one in coupled)))


def tail_output(output: str) -> str:
    """Return the last lines of a command's output."""
    return "\n".join(output.rstrip()[-LONGEST_OUTPUT:].splitlines()[-LINES_KEPT:])


def format_conflict(left_out: LeftOutBranch) -> str:
    """Describe a conflict for the agent that resolves it: the commits, the files, and both sides of each conflict."""
    files = "\n".join(f"- {escape_unprintable(file)}" for file in left_out.files) or "- none in particular"
    told = (
        f"The merge of {escape_unprintable(left_out.branch)} (commit {left_out.commit}) into commit "
        f"{left_out.onto} has conflicts: "
        f"{left_out.why}\n\nFiles:\n{files}"
    )
    if not left_out.output:
        return told
    return f"{told}\n\nBoth sides of the conflicts, with the train's side first:\n{fence_output(left_out.output)}"


async def _must_be_branch_name(place: GitLocation, name: str) -> None:
    done = await call_git(place, "check-ref-format", "--branch", name) if name.isprintable() else None
    if done is None or done.code != 0 or done.out.decode().strip() != name or find_shell_character(name):
        raise Mistake(
            f"{escape_unprintable(name)!r} is not a valid name for the integration branch; use a name like podium/merge"
        )


async def _create_branch(place: GitLocation, name: str, commit: str, reason: str) -> str:
    """Create a new branch at a commit, and return its ref. An existing branch is never changed.

    `reason` is for the reflog.
    """
    for number in range(1, MOST_NAMES):
        numbered = name if number == 1 else f"{name}-{number}"
        if numbered in await branch_tips(place, [numbered]):
            continue
        # Given an empty old value, git creates the ref only if it does not exist at that moment.
        done = await call_git(place, "update-ref", "-m", reason, HEADS + numbered, commit, "")
        if done.code == 0:
            return HEADS + numbered
        if numbered not in await branch_tips(place, [numbered]):
            raise Mistake(
                f"cannot create the branch {escape_unprintable(numbered)}: "
                f"{escape_unprintable(truncate_text(done.err, 300))}; try another name"
            )
    raise OutsideFailed(
        f"there are already too many branches with names like {escape_unprintable(name)}; "
        "delete those you no longer need"
    )


def _get_check_name(result: CheckResult) -> str:
    """Return the name of the check that failed, without how it ended."""
    return result.command.partition(" [")[0]
