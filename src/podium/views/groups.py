"""How runs are listed: in groups, one by default, one for each repository and one for each team.

This module says which run belongs where and in which order things stand. It is plain functions over
values: nothing is read or written here. What the person did by hand stays as it is, and the runs of
a team stay together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from posixpath import join, normpath
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ..values.errors import Mistake, NoSuchRun

Kind = Literal["default", "repo", "team"]

LONGEST_NAME = 80
MOST_TOLD = 8
DEFAULT = "default"
_WORKTREES = "worktrees"
_ID = re.compile(r"[gG](\d{1,18})")


class Home(NamedTuple):
    """Where a run belongs by itself; there is one group for each home."""

    kind: Kind
    repo: str = ""
    team: str = ""

    @property
    def name(self) -> str:
        """What its group is called until the person says otherwise."""
        match self.kind:
            case "team":
                name = self.team
            case "repo":
                name = PurePosixPath(self.repo).name or self.repo
            case "default":
                name = DEFAULT
        return name[:LONGEST_NAME]


class Group(Struct, frozen=True, kw_only=True):
    """Runs that are listed together. `position` is its place among the groups, where the person gave it one."""

    id: int
    home: Home
    name: str
    position: int | None = None
    is_pinned: bool = False
    is_archived: bool = False

    @property
    def tag(self) -> str:
        """Its id as people write it. No run's id looks like it."""
        return f"g{self.id}"

    def __str__(self) -> str:
        return f"{self.tag} ({self.home.team and f'team {self.home.team} in '}{self.home.repo or self.name})"


class Placement(Struct, frozen=True, kw_only=True):
    """Where a run is listed, and how. A `group` of None takes it out of all listings, for good."""

    run: str
    group: int | None
    name: str = ""
    position: int | None = None
    is_pinned: bool = False
    is_archived: bool = False
    is_manual: bool = False


class Placeable(NamedTuple):
    """A run as far as its place depends on it: its main repository, and its team where it is a team's."""

    id: str
    repo: str = ""
    team: str = ""

    @property
    def home(self) -> Home:
        if self.team:
            return Home("team", self.repo, self.team)
        return Home("repo", self.repo) if self.repo else Home("default")


class Changes(Struct, frozen=True, kw_only=True):
    """Groups and placements that are new or differ from what was."""

    groups: tuple[Group, ...] = ()
    placements: tuple[Placement, ...] = ()


class Arrangement(Struct, frozen=True, kw_only=True):
    """All groups by id, and the placements of runs by run."""

    groups: dict[int, Group] = {}
    placements: dict[str, Placement] = {}

    def with_changes(self, changes: Changes) -> Arrangement:
        """The arrangement after these changes."""
        return Arrangement(
            groups=self.groups | {group.id: group for group in changes.groups},
            placements=self.placements | {placement.run: placement for placement in changes.placements},
        )

    def group_of(self, run: str) -> Group | None:
        """The group that a run is listed in; None for one that is in no listing."""
        placement = self.placements.get(run)
        return None if placement is None or placement.group is None else self.groups.get(placement.group)

    def is_archived(self, run: str) -> bool:
        """Whether a run is put aside, alone or with its group."""
        group = self.group_of(run)
        return self.placements[run].is_archived or (group is not None and group.is_archived)

    def group(self, name: str) -> Group:
        """The one group of this name or id. Raises Mistake."""
        found = self._groups_called(name)
        if len(found) > 1:
            raise Mistake(
                f"{_short(name)} is the name of several groups: {_listed(found)}; give the id of the one you mean"
            )
        if not found:
            raise Mistake(f"there is no group {_short(name)}; {self._near(name)}")
        return found[0]

    def run(self, prefix: str) -> Placement:
        """Where the one run is that begins so, of those that are listed. Raises NoSuchRun."""
        exact = self.placements.get(prefix)
        if exact is not None and exact.group is None:
            raise NoSuchRun(f"run {prefix} was deleted with its group and is in no list; podium show {prefix} shows it")
        found = [prefix] if exact is not None else self._runs_called(prefix)
        if len(found) > 1:
            raise NoSuchRun(
                f"{_short(prefix)} is the beginning of several runs: {_listed(found)}; give more of the one you mean"
            )
        if not found:
            raise NoSuchRun(f"there is no run {_short(prefix)}; podium ps lists those there are")
        return self.placements[found[0]]

    def find(self, name: str) -> Group | Placement:
        """The one group of this name or id, or the one run whose id begins so. Raises Mistake."""
        groups, runs = self._groups_called(name), self._runs_called(name)
        # A whole id is the run's: a group that is called so can still be named by its own id.
        if name in self.placements or (runs and not groups):
            return self.run(name)
        if runs:
            raise Mistake(
                f"{_short(name)} is the name of a group and the beginning of a run: {_listed([*groups, *runs])}; "
                "give the id of the one you mean"
            )
        if groups:
            return self.group(name)
        raise Mistake(f"there is no group and no run {_short(name)}; {self._near(name)}")

    def _groups_called(self, name: str) -> list[Group]:
        if number := _ID.fullmatch(name):
            return [group for group in self.groups.values() if group.id == int(number[1])]
        wanted = name.casefold()
        return [group for group in self.groups.values() if group.name.casefold() == wanted]

    def _runs_called(self, prefix: str) -> list[str]:
        listed = (run for run, placement in self.placements.items() if placement.group is not None)
        return [run for run in listed if run.startswith(prefix)] if prefix else []

    def _near(self, name: str) -> str:
        from difflib import get_close_matches  # here, because mostly what is named is there

        by_name = {group.name.casefold(): group.name for group in self.groups.values()}
        close = get_close_matches(name[:LONGEST_NAME].casefold(), by_name, n=3, cutoff=0.5)
        meant = f"did you mean {' or '.join(repr(by_name[one]) for one in close)}? " if close else ""
        return f"{meant}podium group list lists the groups"

    def must_be_name_for(self, group: Group, name: str) -> str:
        """A name by which a group can be told from the others. Raises Mistake."""
        name = must_be_name(name)
        if _ID.fullmatch(name):
            raise Mistake(f"{name!r} looks like the id of a group; give {group.tag} a name that does not")
        for other in self._groups_called(name):
            if other.id != group.id:
                raise Mistake(f"{other} is called {other.name!r} already; choose another name for {group.tag}")
        return name


class Section(NamedTuple):
    """A group and the runs that are listed in it, both in order."""

    group: Group
    runs: list[str]


def reconcile(runs: Iterable[Placeable], now: Arrangement, *, next_id: int) -> Changes:
    """What must change so that each run is in a group; nothing when it runs again.

    A new run brings its group back from the archive, so that nothing begins unseen. Groups that are
    made get the ids from `next_id` on.
    """
    by_home = {group.home: group for group in now.groups.values()}
    changed: dict[int, Group] = {}
    placements: list[Placement] = []

    def group_at(home: Home) -> Group:
        nonlocal next_id
        if home not in by_home:
            by_home[home] = changed[next_id] = Group(id=next_id, home=home, name=home.name)
            next_id += 1
        return by_home[home]

    group_at(Home("default"))
    for run in runs:
        placement = now.placements.get(run.id)
        if placement is not None and _stays(run, placement, now):
            continue
        group = group_at(run.home)
        if group.is_archived and placement is None:
            group = by_home[run.home] = changed[group.id] = replace(group, is_archived=False)
        was = placement or Placement(run=run.id, group=None)
        placements.append(replace(was, group=group.id, position=None, is_manual=False))
    return Changes(groups=tuple(changed.values()), placements=tuple(placements))


def _stays(run: Placeable, placement: Placement, now: Arrangement) -> bool:
    if placement.group is None:
        return True
    group = now.groups.get(placement.group)
    if group is None:
        return False
    is_of_team = bool(run.team) or group.home.kind == "team"
    return is_of_team or placement.is_manual or group.home == run.home


def sections(runs: Iterable[str], arrangement: Arrangement) -> list[Section]:
    """Every group with those of `runs` that are in it: what is pinned first, then by hand, then as `runs` come.

    `runs` come newest first. Groups without any of them are the last.
    """
    found: dict[int, Section] = {}
    for run in runs:
        if (group := arrangement.group_of(run)) is not None:
            found.setdefault(group.id, Section(group, [])).runs.append(run)
    for id in sorted(arrangement.groups.keys() - found.keys()):
        found[id] = Section(arrangement.groups[id], [])
    for section in found.values():
        section.runs.sort(key=lambda run: _rank(arrangement.placements[run]))
    return sorted(found.values(), key=lambda section: _rank(section.group))


def _rank(thing: Group | Placement) -> tuple[bool, bool, int]:
    return (not thing.is_pinned, thing.position is None, thing.position or 0)


def must_be_name(name: str) -> str:
    """A name that the person gives, without spaces around it. Raises Mistake."""
    name = name.strip()
    if not name:
        raise Mistake("a name must have something in it that can be seen; leave it out to have the first name back")
    if len(name) > LONGEST_NAME:
        raise Mistake(f"a name may have {LONGEST_NAME} characters, and this one has {len(name):,}; give a shorter one")
    if not name.isprintable():
        raise Mistake(f"{name!r} has signs that a terminal would act on or hide; a name is one line of plain text")
    return name


def main_repository(repo: str, mark: str) -> str:
    """The repository that a worktree belongs to, by what its `.git` file says; `repo` itself for any other.

    A worktree names its own folder below the repository's: `gitdir: REPOSITORY/.git/worktrees/fix`.
    """
    word, _, named = mark.partition(":")
    if word != "gitdir" or "\0" in named:
        return repo
    own = PurePosixPath(normpath(join(repo, named.strip())))
    if own.parent.name != _WORKTREES:
        return repo
    shared = own.parent.parent
    return str(shared.parent if shared.name == ".git" else shared)


def _short(name: str) -> str:
    return repr(name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…")


def _listed(things: Sequence[object]) -> str:
    rest = len(things) - MOST_TOLD
    return ", ".join(map(str, things[:MOST_TOLD])) + (f" and {rest} more" if rest > 0 else "")
