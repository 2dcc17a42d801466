"""Read the groups of runs in a store, add missing runs to them, and apply the user's changes.

Each change is one transaction, so several processes can change groups at the same time, and a crash never leaves a
partial change. `views.run_groups` decides which group each run belongs to, and how groups and runs are ordered.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import TracebackType

from msgspec.structs import replace

from ..values.errors import Mistake, StoreCorrupt, StoreFailed
from ..values.event import Event, RunStarted, decode_entry
from ..values.store_address import StoreAddress
from ..views.run_groups import (
    Arrangement,
    Group,
    GroupChanges,
    GroupedRun,
    GroupKey,
    RunOrigin,
    find_main_repository,
    reconcile_groups,
    validate_name,
)
from .sql_connection import LOCK_SECONDS, read_transaction, write_transaction
from .store_connection import open_connection, open_for_reading, translate_errors

LONGEST_MARK = 4096
WORKER = "-worker-"
"""The text between the repository's name and the branch in the default folder name of a worktree."""


class Groups:
    """The groups in one store. `load_arrangement` assigns a group to every run that has none."""

    def __init__(self, path: StoreAddress) -> None:
        self.path = path
        try:
            self._connection = open_connection(path, create=False)
        except StoreCorrupt:
            raise
        except StoreFailed:
            self._connection = open_for_reading(path)  # the medium may be read-only: runs can still be listed

    def __enter__(self) -> Groups:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def load_arrangement(self) -> Arrangement:
        """Return all groups with their runs, after assigning a group to every run that has none.

        If the store cannot be written, the new assignments are returned but not stored.
        """
        with translate_errors(self.path), read_transaction(self._connection):
            now, new = self._read_arrangement(), self._find_ungrouped_runs()
        if not new:
            return now
        try:
            with self._edit_arrangement(is_lasting=False) as changed:
                return changed
        except StoreCorrupt:
            raise
        except StoreFailed:
            return now.with_changes(reconcile_groups(new, now, next_id=max(now.groups, default=0) + 1))

    def read_start_times(self) -> dict[str, float]:
        """Return the creation time of each run, keyed by run id, newest first."""
        with translate_errors(self.path):
            return dict(self._connection.execute("SELECT id, created FROM run ORDER BY created DESC, id").fetchall())

    def list_runs(self, group: Group) -> list[str]:
        """Return the runs in a group."""
        with translate_errors(self.path):
            inside = self._connection.execute("SELECT run FROM placement WHERE place = ?", (group.id,)).fetchall()
        return [run for (run,) in inside]

    def list_unfinished(self, group: Group) -> list[str]:
        """Return the runs in a group that have not ended."""
        inside = self.list_runs(group)
        with translate_errors(self.path):
            return [run for run in inside if not self._has_ended(run)]

    # Changes that the user makes to groups and runs

    def rename(self, thing: Group | GroupedRun, name: str | None) -> str:
        """Rename a group or run, or restore its default name if `name` is None, and return the new name.

        Raise Mistake if the name is invalid.
        """
        with self._edit_arrangement() as now:
            if isinstance(thing, Group):
                thing = _find_current_group(thing, now)
                name = thing.home.default_name if name is None else now.validate_group_name(thing, name)
                self._write_changes(GroupChanges(groups=(replace(thing, name=name),)))
            else:
                name = "" if name is None else validate_name(name)
                self._write_changes(GroupChanges(grouped_runs=(replace(_find_current_run(thing, now), name=name),)))
        return name

    def pin(self, thing: Group | GroupedRun, *, is_pinned: bool) -> None:
        """Pin a group to the top of the list or a run to the top of its group, or unpin it."""
        with self._edit_arrangement() as now:
            self._write_changes(_as_changes(replace(_find_current(thing, now), is_pinned=is_pinned)))

    def archive(self, thing: Group | GroupedRun, *, is_archived: bool) -> None:
        """Hide a group or run from lists, or show it again."""
        with self._edit_arrangement() as now:
            self._write_changes(_as_changes(replace(_find_current(thing, now), is_archived=is_archived)))

    def move(self, run: GroupedRun, group: Group) -> None:
        """Move a run to a group permanently. Raise Mistake if the run or the group belongs to a team."""
        with self._edit_arrangement() as now:
            run, group = _find_current_run(run, now), _find_current_group(group, now)
            was = now.group_of(run.run)
            if was == group:
                return
            for one in (was, group):
                if one is not None and one.home.kind == "team":
                    raise Mistake(
                        f"run {run.run} cannot be moved from {was} to {group}, because runs cannot be moved "
                        f"into or out of a team's group; to hide the run, use podium group archive {run.run}"
                    )
            self._write_changes(_as_changes(replace(run, group=group.id, position=None, is_manual=True)))

    def order_groups(self, groups: Sequence[Group]) -> None:
        """Put these groups first in lists, in this order. The other groups are sorted by their newest run."""
        with self._edit_arrangement() as now:
            places = {_find_current_group(group, now).id: place for place, group in enumerate(groups, 1)}
            self._write_changes(
                GroupChanges(groups=tuple(replace(one, position=places.get(one.id)) for one in now.groups.values()))
            )

    def order_runs(self, group: Group, runs: Sequence[GroupedRun]) -> None:
        """Put these runs first in their group, in this order. The other runs follow, newest first.

        Raise Mistake if one of the runs is not in the group.
        """
        with self._edit_arrangement() as now:
            places = {_find_current_run(run, now).run: place for place, run in enumerate(runs, 1)}
            inside = [placement for placement in now.grouped_runs.values() if placement.group == group.id]
            if strangers := places.keys() - {placement.run for placement in inside}:
                raise Mistake(
                    f"run {min(strangers)} is not in {group}, and runs can only be ordered within their group; "
                    "order the runs of one group at a time"
                )
            self._write_changes(
                GroupChanges(grouped_runs=tuple(replace(one, position=places.get(one.run)) for one in inside))
            )

    def delete(self, group: Group) -> list[str]:
        """Delete a group. A team's runs disappear from all lists, and other runs move to the default group.

        Return the team's runs that have not ended; if there are any, nothing is deleted. Raise Mistake for the
        default group.
        """
        with self._edit_arrangement() as now:
            group = _find_current_group(group, now)
            inside = [placement for placement in now.grouped_runs.values() if placement.group == group.id]
            match group.home.kind:
                case "default":
                    raise Mistake(
                        f"the group {group.name!r} cannot be deleted, because it lists all runs that have no other "
                        f"group; run podium group archive {group.tag} to hide it instead"
                    )
                case "team":
                    if unfinished := self.list_unfinished(group):
                        return unfinished
                    placed = [replace(one, group=None) for one in inside]
                case "repo":
                    default = next(one.id for one in now.groups.values() if one.home == GroupKey("default"))
                    placed = [
                        replace(
                            one,
                            group=default,
                            position=None,
                            is_archived=one.is_archived or group.is_archived,
                            is_manual=True,
                        )
                        for one in inside
                    ]
            self._write_changes(GroupChanges(grouped_runs=tuple(placed)))
            self._connection.execute("DELETE FROM run_group WHERE id = ?", (group.id,))
        return []

    # Storage

    @contextmanager
    def _edit_arrangement(self, *, is_lasting: bool = True) -> Iterator[Arrangement]:
        """Assign a group to every run, and yield the arrangement. Others cannot change it until the block ends.

        If `is_lasting` is true, the changes are synced to disk when they are committed. It is false if the block only
        assigns groups, because these assignments can be computed again.
        """
        with translate_errors(self.path):
            self._connection.set_durable(is_lasting)
            # Listing groups must not wait long for another process that is writing.
            self._connection.set_lock_timeout(LOCK_SECONDS if is_lasting else 0.1)
        with translate_errors(self.path), write_transaction(self._connection, "groups"):
            now = self._read_arrangement()
            # Read again under the lock: another process may have assigned groups in the meantime.
            changes = reconcile_groups(self._find_ungrouped_runs(), now, next_id=self._next_group_id())
            self._write_changes(changes)
            yield now.with_changes(changes)

    def _read_arrangement(self) -> Arrangement:
        groups = self._connection.execute(
            "SELECT id, kind, repo, team, name, position, pinned, archived FROM run_group ORDER BY id"
        )
        placements = self._connection.execute(
            "SELECT run, place, name, position, pinned, archived, manual FROM placement"
        )
        return Arrangement(
            groups={
                id: Group(
                    id=id,
                    home=GroupKey(kind, repo, team),
                    name=name,
                    position=position,
                    is_pinned=bool(pinned),
                    is_archived=bool(archived),
                )
                for id, kind, repo, team, name, position, pinned, archived in groups
            },
            grouped_runs={
                run: GroupedRun(
                    run=run,
                    group=place,
                    name=name,
                    position=position,
                    is_pinned=bool(pinned),
                    is_archived=bool(archived),
                    is_manual=bool(manual),
                )
                for run, place, name, position, pinned, archived, manual in placements
            },
        )

    def _write_changes(self, changes: GroupChanges) -> None:
        self._connection.executemany(
            "INSERT INTO run_group (id, kind, repo, team, name, position, pinned, archived)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET name = excluded.name,"
            " position = excluded.position, pinned = excluded.pinned, archived = excluded.archived",
            [(one.id, *one.home, one.name, one.position, one.is_pinned, one.is_archived) for one in changes.groups],
        )
        self._connection.executemany(
            "INSERT INTO placement (run, place, name, position, pinned, archived, manual)"
            " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run) DO UPDATE SET place = excluded.place,"
            " name = excluded.name, position = excluded.position, pinned = excluded.pinned,"
            " archived = excluded.archived, manual = excluded.manual",
            [
                (one.run, one.group, one.name, one.position, one.is_pinned, one.is_archived, one.is_manual)
                for one in changes.grouped_runs
            ],
        )

    def _find_ungrouped_runs(self) -> list[RunOrigin]:
        """Return the runs that have no group yet, oldest first."""
        found = self._connection.execute(
            "SELECT id, (SELECT line FROM entry WHERE entry.run = run.id AND seq = 1) FROM run WHERE NOT EXISTS"
            " (SELECT 1 FROM placement WHERE placement.run = run.id"
            " AND (place IS NULL OR place IN (SELECT id FROM run_group))) ORDER BY created, id"
        ).fetchall()
        # A run whose first entry cannot be read gets no group, because a newer release may be able to read it.
        readable = ((id, line) for id, line in found if line is not None and _decode_event(line) is not None)
        return list(_find_origins(readable, self._read_first_line))

    def _read_first_line(self, run: str) -> bytes | None:
        row = self._connection.execute("SELECT line FROM entry WHERE run = ? AND seq = 1", (run,)).fetchone()
        return None if row is None else row[0]

    def _next_group_id(self) -> int:
        """Return an id that has never been used for a group."""
        return self._connection.read_last_group_id() + 1

    def _has_ended(self, run: str) -> bool:
        last = self._connection.execute("SELECT kind FROM entry WHERE run = ? ORDER BY seq DESC LIMIT 1", (run,))
        return bool(last.fetchone() == ("run_ended",))


def _decode_event(line: bytes) -> Event | None:
    """Return the event of an entry, or None if the entry cannot be read."""
    try:
        return decode_entry(line).event
    except StoreCorrupt:
        return None


def _find_origins(
    first_lines: Iterable[tuple[str, bytes]], read_first_line: Callable[[str], bytes | None]
) -> Iterator[RunOrigin]:
    """Yield the origin of each run. The origin of a worker that a team's run started is that team."""
    main = cache(_find_main_repository)
    known: dict[str, RunOrigin] = {}

    def find_origin(run: str, line: bytes | None) -> RunOrigin:
        if run in known:
            return known[run]
        known[run] = RunOrigin(run)
        started = None if line is None else _decode_event(line)
        if not isinstance(started, RunStarted):
            return known[run]
        lead = started.agents[0] if started.agents else None
        # An agent that reflects without a team is stored with a team that has no members. Its run is grouped like the
        # run of any other single agent.
        is_team = lead is not None and lead.team is not None and bool(lead.team.members)
        team = lead.name if lead is not None and is_team else ""
        known[run] = RunOrigin(run, main(started.repo) if started.repo else "", team)
        if started.errand is not None and (parent := started.errand.parent):
            above = find_origin(parent, read_first_line(parent))
            if above.team:
                known[run] = RunOrigin(run, above.repo, above.team)
        return known[run]

    for run, line in first_lines:
        yield find_origin(run, line)


def _find_main_repository(repo: str) -> str:
    """Return the repository of a worktree. If the folder is not a worktree, return the folder itself."""
    mark = Path(repo, ".git")
    try:
        if not os.path.lexists(mark):
            return _find_repository_by_name(Path(repo))
        # Open regular files only: reading a pipe could block forever.
        if stat.S_ISREG(mark.lstat().st_mode):
            with mark.open(encoding="utf-8") as file:
                return find_main_repository(repo, file.read(LONGEST_MARK))
    except (OSError, ValueError):
        pass  # unreadable, so the folder counts as its own repository
    return repo


def _find_repository_by_name(folder: Path) -> str:
    """Find the repository of a removed Podium worktree by the name of the worktree's folder, or return `folder`."""
    parts = folder.name.split(WORKER)
    for end in range(len(parts) - 1, 0, -1):
        name = WORKER.join(parts[:end])
        if name and (folder.with_name(name) / ".git").is_dir():
            return str(folder.with_name(name))
    return str(folder)


def _find_current(thing: Group | GroupedRun, now: Arrangement) -> Group | GroupedRun:
    """Return the current version of a group or run. Raise Mistake if it has been deleted."""
    return _find_current_group(thing, now) if isinstance(thing, Group) else _find_current_run(thing, now)


def _find_current_group(group: Group, now: Arrangement) -> Group:
    if group.id not in now.groups:
        raise Mistake(f"{group} has been deleted; run podium group list to see the remaining groups")
    return now.groups[group.id]


def _find_current_run(run: GroupedRun, now: Arrangement) -> GroupedRun:
    if now.grouped_runs[run.run].group is None:
        raise Mistake(f"run {run.run} has been deleted with its group; run podium ps to see the remaining runs")
    return now.grouped_runs[run.run]


def _as_changes(thing: Group | GroupedRun) -> GroupChanges:
    return GroupChanges(groups=(thing,)) if isinstance(thing, Group) else GroupChanges(grouped_runs=(thing,))
