"""Assign runs to groups, and sort groups and runs for display.

There is a default group, a group for each repository and a group for each team. This module performs no I/O.
Changes that the user makes are preserved, and the runs of a team stay together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePosixPath
from posixpath import join, normpath
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ..values.errors import Mistake, NoSuchRun
from ..values.plain_text import join_some

Kind = Literal["default", "repo", "team"]

MAX_NAME_LENGTH = 80
MAX_LISTED = 8
DEFAULT_GROUP_NAME = "default"
_WORKTREES = "worktrees"
_ID = re.compile(r"[gG](\d{1,18})")


class GroupKey(NamedTuple):
    """The key of the group that a run belongs to by default. Each group has a unique key."""

    kind: Kind
    repo: str = ""
    team: str = ""

    @property
    def default_name(self) -> str:
        """The name of the group until the user renames it."""
        match self.kind:
            case "team":
                name = self.team
            case "repo":
                name = PurePosixPath(self.repo).name or self.repo
            case "default":
                name = DEFAULT_GROUP_NAME
        return name[:MAX_NAME_LENGTH]


class Group(Struct, frozen=True, kw_only=True):
    """A group of runs. `position` is its place among the groups, if the user set one."""

    id: int
    home: GroupKey
    name: str
    position: int | None = None
    is_pinned: bool = False
    is_archived: bool = False

    @property
    def tag(self) -> str:
        """The group's id in the form that users type, such as `g3`. Run ids never have this form."""
        return f"g{self.id}"

    def __str__(self) -> str:
        return f"{self.tag} ({self.home.team and f'team {self.home.team} in '}{self.home.repo or self.name})"


class GroupedRun(Struct, frozen=True, kw_only=True):
    """A run's place in its group. If `group` is None, the run was removed from all lists permanently.

    `is_manual` is set if the user moved the run to the group.
    """

    run: str
    group: int | None
    name: str = ""
    position: int | None = None
    is_pinned: bool = False
    is_archived: bool = False
    is_manual: bool = False


class RunOrigin(NamedTuple):
    """The origin of a run, which determines its default group: its main repository, and its team if it has one."""

    id: str
    repo: str = ""
    team: str = ""

    @property
    def group_key(self) -> GroupKey:
        if self.team:
            return GroupKey("team", self.repo, self.team)
        return GroupKey("repo", self.repo) if self.repo else GroupKey("default")


class GroupChanges(Struct, frozen=True, kw_only=True):
    """Groups and grouped runs that are new or changed."""

    groups: tuple[Group, ...] = ()
    grouped_runs: tuple[GroupedRun, ...] = ()


class Arrangement(Struct, frozen=True, kw_only=True):
    """All groups, keyed by id, and all grouped runs, keyed by run id."""

    groups: dict[int, Group] = {}
    grouped_runs: dict[str, GroupedRun] = {}

    def with_changes(self, changes: GroupChanges) -> Arrangement:
        """Return the arrangement with these changes applied."""
        return Arrangement(
            groups=self.groups | {group.id: group for group in changes.groups},
            grouped_runs=self.grouped_runs | {grouped.run: grouped for grouped in changes.grouped_runs},
        )

    def group_of(self, run: str) -> Group | None:
        """Return a run's group, or None if the run is not listed."""
        grouped = self.grouped_runs.get(run)
        return None if grouped is None or grouped.group is None else self.groups.get(grouped.group)

    def is_archived(self, run: str) -> bool:
        """Return whether a run or its group is archived."""
        group = self.group_of(run)
        return self.grouped_runs[run].is_archived or (group is not None and group.is_archived)

    def find_group(self, name: str) -> Group:
        """Return the group with this name or id. Raise Mistake unless exactly one matches."""
        found = self._match_groups(name)
        if len(found) > 1:
            raise Mistake(
                f"{_abbreviate_name(name)} matches several groups: {_format_list(found)}; use the id of one of them"
            )
        if not found:
            raise Mistake(f"group {_abbreviate_name(name)} not found; {self._suggest_groups(name)}")
        return found[0]

    def get_listed_run(self, run: str) -> GroupedRun:
        """Return the place of the run with this id. Raise NoSuchRun if the run is not listed."""
        grouped = self.grouped_runs.get(run)
        if grouped is None:
            raise NoSuchRun(f"run {run} is in no group; run podium ps to list the runs")
        if grouped.group is None:
            raise NoSuchRun(
                f"run {run} is no longer listed because its group was deleted; run podium show {run} to see it"
            )
        return grouped

    def find_group_or_run(self, name: str, resolve_run: Callable[[str], str]) -> Group | GroupedRun:
        """Return the group with this name or id, or the run to which `resolve_run` resolves the name.

        Raise Mistake unless exactly one group or run matches.
        """
        groups, runs = self._match_groups(name), self._match_runs(name)
        # A complete run id selects the run. A group with the same name can still be selected by its id.
        if name in self.grouped_runs:
            return self.get_listed_run(name)
        if groups and runs:
            raise Mistake(
                f"{_abbreviate_name(name)} is both the name of a group and the start of a run id: "
                f"{_format_list([*groups, *runs])}; "
                "use the id of one of them"
            )
        if groups:
            return self.find_group(name)
        try:
            return self.get_listed_run(resolve_run(name))
        except NoSuchRun:
            if runs:
                raise
            raise Mistake(f"group or run {_abbreviate_name(name)} not found; {self._suggest_groups(name)}") from None

    def _match_groups(self, name: str) -> list[Group]:
        if number := _ID.fullmatch(name):
            return [group for group in self.groups.values() if group.id == int(number[1])]
        wanted = name.casefold()
        return [group for group in self.groups.values() if group.name.casefold() == wanted]

    def _match_runs(self, prefix: str) -> list[str]:
        listed = (run for run, placement in self.grouped_runs.items() if placement.group is not None)
        return [run for run in listed if run.startswith(prefix)] if prefix else []

    def _suggest_groups(self, name: str) -> str:
        from difflib import get_close_matches  # imported here because it is needed only if a name is not found

        by_name = {group.name.casefold(): group.name for group in self.groups.values()}
        close = get_close_matches(name[:MAX_NAME_LENGTH].casefold(), by_name, n=3, cutoff=0.5)
        meant = f"did you mean {' or '.join(repr(by_name[one]) for one in close)}? " if close else ""
        return f"{meant}run podium group list to see the groups"

    def validate_group_name(self, group: Group, name: str) -> str:
        """Return the name for a group. Raise Mistake if it is invalid or another group uses it."""
        name = validate_name(name)
        if _ID.fullmatch(name):
            raise Mistake(f"{name!r} looks like a group id; choose a different name for {group.tag}")
        for other in self._match_groups(name):
            if other.id != group.id:
                raise Mistake(f"{other} is already named {other.name!r}; choose another name for {group.tag}")
        return name


class GroupSection(NamedTuple):
    """A group and its runs, in display order."""

    group: Group
    runs: list[str]


def reconcile_groups(runs: Iterable[RunOrigin], now: Arrangement, *, next_id: int) -> GroupChanges:
    """Return the changes that put each run into a group. Once they are applied, a second call returns no changes.

    A new run unarchives its group, so that every new run is visible. New groups get ids starting at `next_id`.
    """
    by_key = {group.home: group for group in now.groups.values()}
    changed: dict[int, Group] = {}
    grouped_runs: list[GroupedRun] = []

    def find_or_create_group(key: GroupKey) -> Group:
        nonlocal next_id
        if key not in by_key:
            by_key[key] = changed[next_id] = Group(id=next_id, home=key, name=key.default_name)
            next_id += 1
        return by_key[key]

    find_or_create_group(GroupKey("default"))
    for run in runs:
        grouped = now.grouped_runs.get(run.id)
        if grouped is not None and _keeps_group(run, grouped, now):
            continue
        group = find_or_create_group(run.group_key)
        if group.is_archived and grouped is None:
            group = by_key[run.group_key] = changed[group.id] = replace(group, is_archived=False)
        was = grouped or GroupedRun(run=run.id, group=None)
        grouped_runs.append(replace(was, group=group.id, position=None, is_manual=False))
    return GroupChanges(groups=tuple(changed.values()), grouped_runs=tuple(grouped_runs))


def _keeps_group(run: RunOrigin, grouped: GroupedRun, now: Arrangement) -> bool:
    if grouped.group is None:
        return True
    group = now.groups.get(grouped.group)
    if group is None:
        return False
    is_of_team = bool(run.team) or group.home.kind == "team"
    return is_of_team or grouped.is_manual or group.home == run.group_key


def build_sections(runs: Iterable[str], arrangement: Arrangement) -> list[GroupSection]:
    """Return every group with its runs.

    Groups, and the runs in each group, are sorted: pinned ones first, then by manual position, then in the order of
    `runs`, which must be newest first. If a group has neither runs nor a manual position, it comes last among the
    pinned groups or last among the others.
    """
    found: dict[int, GroupSection] = {}
    for run in runs:
        if (group := arrangement.group_of(run)) is not None:
            found.setdefault(group.id, GroupSection(group, [])).runs.append(run)
    for id in sorted(arrangement.groups.keys() - found.keys()):
        found[id] = GroupSection(arrangement.groups[id], [])
    for section in found.values():
        section.runs.sort(key=lambda run: _sort_key(arrangement.grouped_runs[run]))
    return sorted(found.values(), key=lambda section: _sort_key(section.group))


def _sort_key(thing: Group | GroupedRun) -> tuple[bool, bool, int]:
    return (not thing.is_pinned, thing.position is None, thing.position or 0)


def validate_name(name: str) -> str:
    """Return a name that the user chose, without surrounding spaces. Raise Mistake if it is invalid."""
    name = name.strip()
    if not name:
        raise Mistake(
            "the name is empty; give one with visible characters, or leave it out to restore the default name"
        )
    if len(name) > MAX_NAME_LENGTH:
        raise Mistake(f"the name can have at most {MAX_NAME_LENGTH} characters, got {len(name):,}; give a shorter one")
    if not name.isprintable():
        raise Mistake(f"{name!r} contains unprintable characters; a name must be one line of plain text")
    return name


def describe_target(thing: Group | GroupedRun) -> str:
    """Describe a group or a run for use in messages."""
    return f"run {thing.run}" if isinstance(thing, GroupedRun) else f"group {thing.name!r} ({thing.tag})"


def find_main_repository(repo: str, git_file: str) -> str:
    """Return the repository that the worktree `repo` belongs to. If `repo` is not a worktree, return `repo` itself.

    `git_file` is the content of the file `.git` in `repo`. In a worktree, this file points to a folder in the main
    repository: `gitdir: REPOSITORY/.git/worktrees/fix`.
    """
    word, _, named = git_file.partition(":")
    if word != "gitdir" or "\0" in named:
        return repo
    own = PurePosixPath(normpath(join(repo, named.strip())))
    if own.parent.name != _WORKTREES:
        return repo
    shared = own.parent.parent
    return str(shared.parent if shared.name == ".git" else shared)


def _abbreviate_name(name: str) -> str:
    return repr(name if len(name) <= MAX_NAME_LENGTH else f"{name[:MAX_NAME_LENGTH]}…")


def _format_list(things: Sequence[object]) -> str:
    return join_some([str(one) for one in things], MAX_LISTED)
