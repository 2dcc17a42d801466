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
from ...values.plain_text import cut, plain
from ..git.repository import Checkout, Place, Repository, git
from ..git.revision import HEADS, SHORT, contains, pinned, tip, tips, tree_of
from ..git.snapshot import committed, detached
from .resolution_commit import begun_in, unresolved
from .trial_merge import Clash, Side, attempt, excerpt

LINES_KEPT = 40
LONGEST_OUTPUT = 8 * 1024
MOST_NAMES = 1000

Reason = Literal["conflict", "unresolved", "check", "dependency", "moved", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Car:
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
class Coupled:
    """A branch that is in: the commit of the train that has it, and the tree that was checked."""

    branch: str
    commit: str
    tree: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
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
    coupled: tuple[Coupled, ...]
    left_out: tuple[LeftOut, ...]


async def train(repo: Place, cars: Sequence[Car], *, onto: str, integration: str, check: Check) -> Train:
    """Merge the cars, in the order of what they build on, onto a new branch that begins where `onto` is.

    Where a branch of the name `integration` exists, the new one gets a number.
    """
    place = pinned(repo)
    ordered = in_order(cars)
    await _must_be_a_branch_name(place, integration)
    base = await tip(place, onto)
    building = _Building(place, check, Side(name=onto, commit=base))
    await building.look_up(ordered)
    for car in ordered:
        await building.take(car)
    ref = await _made(place, integration, building.head) if building.coupled else None
    return Train(
        target=onto,
        base=base,
        commit=building.head,
        tree=await tree_of(place, building.head),
        ref=ref,
        coupled=tuple(building.coupled),
        left_out=tuple(building.left_out),
    )


def in_order(cars: Sequence[Car]) -> list[Car]:
    """The cars in the order given, each moved behind those that it builds on. Raises Mistake for a cycle."""
    waiting = {car.branch: car for car in cars}
    if len(waiting) < len(cars):
        twice = next(car.branch for car in cars if sum(car.branch == other.branch for other in cars) > 1)
        raise Mistake(f"the branch {plain(twice)} stands in the train twice; once would be right")
    ordered: list[Car] = []
    while waiting:
        ready = next((car for car in waiting.values() if waiting.keys().isdisjoint(car.after)), None)
        if ready is None:
            circle = " → ".join(plain(branch) for branch in _cycle(waiting))
            raise Mistake(f"these branches wait for each other: {circle}; take one of the dependencies away")
        ordered.append(waiting.pop(ready.branch))
    return ordered


def _cycle(waiting: Mapping[str, Car]) -> list[str]:
    """One way round, in which every car waits for the next."""
    way = [next(iter(waiting))]
    while True:
        following = next(branch for branch in waiting[way[-1]].after if branch in waiting)
        if following in way:
            return [*way[way.index(following) :], following]
        way.append(following)


class _Building:
    """A train that is being put together."""

    def __init__(self, place: Repository | Checkout, check: Check, target: Side) -> None:
        self._place = place
        self._check = check
        self._target = target
        self._tips: dict[str, str] = {}
        self.head = target.commit
        self.coupled: list[Coupled] = []
        self.left_out: list[LeftOut] = []

    async def look_up(self, cars: Sequence[Car]) -> None:
        """Find where the branches are, and those that they build on, once for the whole train."""
        self._tips = await tips(self._place, {name for car in cars for name in (car.branch, *car.after)})

    async def take(self, car: Car) -> None:
        """Couple a car, or leave it out and say why."""
        left_out = await self._unfit(car) or await self._merge(car)
        if left_out is not None:
            self.left_out.append(left_out)

    async def _unfit(self, car: Car) -> LeftOut | None:
        """Why a car cannot even be tried."""
        now = self._tips.get(car.branch)
        if now is None:
            return self._out(car, "missing", f"there is no branch {plain(car.branch)}")
        if now != car.commit:
            moved = f"was looked at as {car.commit[:SHORT]} and is at {now[:SHORT]} by now; look at it again"
            return self._out(car, "moved", f"{plain(car.branch)} {moved}")
        for earlier in car.after:
            if lacking := await self._lacking(earlier):
                return self._out(car, "dependency", f"it builds on {plain(earlier)}, which {lacking}")
        for beginning in await begun_in(self._place, car.commit, beyond=self.head):
            if files := await unresolved(self._place, car.commit, beginning):
                return self._out(
                    car, "unresolved", "marks of a conflict are left in it, which has to be resolved first", files=files
                )
        return None

    async def _lacking(self, earlier: str) -> str:
        """Why what a car builds on is not there; nothing where it is, or where its branch is gone by now."""
        if any(one.branch == earlier for one in self.coupled):
            return ""
        if any(one.branch == earlier for one in self.left_out):
            return "was left out"
        commit = self._tips.get(earlier)
        # Merged some time ago and cleaned up: there is nothing left to wait for.
        if commit is None or await contains(self._place, self._target.commit, commit):
            return ""
        return f"is neither in this train nor in {plain(self._target.name)}; merge it, too"

    async def _merge(self, car: Car) -> LeftOut | None:
        """Merge a car onto the train as it is, and keep that if the check passes."""
        if await contains(self._place, self.head, car.commit):
            self.coupled.append(
                Coupled(branch=car.branch, commit=self.head, tree=await tree_of(self._place, self.head))
            )
            return None
        ours = Side(name=so_far(self._target.name, self.coupled), commit=self.head)
        theirs = Side(name=car.branch, commit=car.commit)
        outcome = await attempt(self._place, ours, theirs)
        if isinstance(outcome, Clash):
            return await clashing(self._place, outcome, ours, theirs)
        message = f"Merge branch '{car.branch}'"
        commit = await committed(self._place, outcome.tree, [self.head, car.commit], message)
        async with detached(self._place, commit) as checkout:
            result = await self._check(checkout.path)
        if not result.passed:
            failed = plain(result.command) or "the check"
            return self._out(car, "check", f"{failed} fails with it", output=last_lines(result.output))
        self.head = commit
        self.coupled.append(Coupled(branch=car.branch, commit=commit, tree=outcome.tree))
        return None

    def _out(self, car: Car, reason: Reason, why: str, *, files: tuple[str, ...] = (), output: str = "") -> LeftOut:
        return LeftOut(
            branch=car.branch, commit=car.commit, reason=reason, why=why, onto=self.head, files=files, output=output
        )


async def clashing(place: Place, clash: Clash, ours: Side, theirs: Side) -> LeftOut:
    """The branch of `theirs`, left out because it clashes with `ours`."""
    why = "; ".join(plain(one.text) for one in clash.conflicts) or "it clashes with the train"
    return LeftOut(
        branch=theirs.name,
        commit=theirs.commit,
        reason="conflict",
        why=cut(why, 1000),
        onto=ours.commit,
        files=clash.files,
        output=await excerpt(place, clash, ours, theirs),
    )


def so_far(target: str, coupled: Sequence[Coupled]) -> str:
    """What a car is merged onto, in words."""
    return " + ".join((target, *(one.branch for one in coupled)))


def last_lines(output: str) -> str:
    """The end of what a command printed."""
    return "\n".join(output.rstrip()[-LONGEST_OUTPUT:].splitlines()[-LINES_KEPT:])


def conflict_text(left_out: LeftOut) -> str:
    """What someone needs to resolve a conflict: the commits, the files, and both sides of what clashes."""
    files = "\n".join(f"- {plain(file)}" for file in left_out.files) or "- none in particular"
    told = (
        f"Merging {plain(left_out.branch)} (commit {left_out.commit}) onto commit {left_out.onto} clashes: "
        f"{left_out.why}\n\nFiles:\n{files}"
    )
    if not left_out.output:
        return told
    return f"{told}\n\nBoth sides, the train's first:\n{fenced(left_out.output)}"


def fenced(output: str) -> str:
    """What is quoted in a text for an agent, between marks that are not in it."""
    fence = "`" * max(3, *(len(run) + 1 for run in ("", *re.findall("`+", output))))
    return f"{fence}\n{output}\n{fence}"


async def _must_be_a_branch_name(place: Place, name: str) -> None:
    done = await git(place, "check-ref-format", "--branch", name) if name.isprintable() else None
    if done is None or done.code != 0 or done.out.decode().strip() != name:
        raise Mistake(f"{plain(name)!r} cannot be the name of the integration branch; one like podium/merge would work")


async def _made(place: Place, name: str, commit: str) -> str:
    """The ref of a new branch at a commit; never one that exists."""
    for number in range(1, MOST_NAMES):
        numbered = name if number == 1 else f"{name}-{number}"
        if numbered in await tips(place, [numbered]):
            continue
        # An empty old value: git makes the ref only if there is none at that moment.
        done = await git(place, "update-ref", "-m", "merge train", HEADS + numbered, commit, "")
        if done.code == 0:
            return HEADS + numbered
        if numbered not in await tips(place, [numbered]):
            raise Mistake(f"the branch {plain(numbered)} cannot be made: {plain(cut(done.err, 300))}; try another name")
    raise OutsideFailed(f"there are {MOST_NAMES} branches like {plain(name)} already; remove those that are done")
