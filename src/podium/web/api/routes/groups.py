"""Routes for groups of runs: list groups, move runs between groups, and rename, pin and archive groups and runs."""

from __future__ import annotations

import time
from typing import Annotated

from litestar import get, post
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Struct, UnsetType

from ....runs import find
from ....runs.queries.run_listing import GROUP_COLUMNS, RUN_COLUMNS, GroupObject, GroupRow, RunPlace, make_run_row
from ....runs.queries.run_lookup import NO_RUNS
from ....store.group_rows import Groups
from ....store.reader import StoreReader
from ....values.column import Document, RowColumns, encode_row
from ....values.errors import Mistake, NoSuchRun
from ....views.run_groups import describe_target
from ..route_parameters import RunPrefix, Server
from ..scopes import may_act, may_read

PLACE_COLUMNS = tuple(column for column in RUN_COLUMNS if column.name in ("group", "name", "pinned", "archived"))


class GroupChange(Struct, forbid_unknown_fields=True):
    """Changes to a group or a run. A `name` of null restores the original name."""

    name: str | UnsetType | None = UNSET
    pinned: bool | UnsetType = UNSET
    archived: bool | UnsetType = UNSET


class NewPlace(Struct, forbid_unknown_fields=True):
    """The name or id of the group that a run moves to."""

    group: str


class GroupList(Document, frozen=True, kw_only=True):
    """The groups of runs, and the place of each run."""

    groups: list[GroupObject]
    runs: dict[str, Annotated[dict[str, object], RowColumns(PLACE_COLUMNS)]]


class DoneChange(Struct, frozen=True, kw_only=True):
    """A sentence that says what was changed."""

    text: str


@get("/api/groups", guards=[may_read], sync_to_thread=True)
def read_groups(server: Server) -> GroupList:
    """List the groups of runs, and the group of each run."""
    if not server.store.exists():
        return GroupList(groups=[], runs={})
    with StoreReader(server.store) as reader, Groups(server.store) as groups:
        summaries, arrangement = reader.read_run_list().readable, groups.load_arrangement()
    now = time.time()
    rows = [
        make_run_row(one, now=now, place=RunPlace.find(one.id, arrangement))
        for one in summaries
        if arrangement.group_of(one.id)
    ]
    return GroupList(
        groups=[encode_row(GroupRow(group=one), GROUP_COLUMNS) for one in arrangement.groups.values()],
        runs={row.summary.id: encode_row(row, PLACE_COLUMNS) for row in rows},
    )


@post("/api/groups/{target:str}", guards=[may_act], status_code=200, sync_to_thread=True)
def change_group(target: FromPath[str], data: JSONBody[GroupChange], server: Server) -> DoneChange:
    """Rename, pin or archive a group or a run. `target` is a group's name or id, or a run."""
    said: list[str] = []
    with _open_groups(server) as groups:
        thing = groups.load_arrangement().find_group_or_run(
            target, lambda ref: find.resolve(server.store, ref, repo=server.repo).run
        )
        if data.name is not UNSET:
            called = groups.rename(thing, data.name)
            said.append(f"is now called {called!r}" if called else "was renamed back to its original name")
        if data.pinned is not UNSET:
            groups.pin(thing, is_pinned=data.pinned)
            said.append("is pinned" if data.pinned else "is no longer pinned")
        if data.archived is not UNSET:
            groups.archive(thing, is_archived=data.archived)
            said.append("is archived" if data.archived else "is no longer archived")
    if not said:
        raise Mistake("nothing would change; give name, pinned or archived")
    return DoneChange(text=f"{describe_target(thing)} {' and '.join(said)}")


@post("/api/runs/{run:str}/group", guards=[may_act], status_code=200, sync_to_thread=True)
def move_run(run: RunPrefix, data: JSONBody[NewPlace], server: Server) -> DoneChange:
    """Move a run to another group. The runs of a team stay together and cannot be moved."""
    with _open_groups(server) as groups:
        arrangement = groups.load_arrangement()
        id = find.resolve(server.store, run, repo=server.repo).run
        grouped_run, target = arrangement.get_listed_run(id), arrangement.find_group(data.group)
        groups.move(grouped_run, target)
    return DoneChange(text=f"{describe_target(grouped_run)} is now in {describe_target(target)}")


def _open_groups(server: Server) -> Groups:
    if not server.store.exists():
        raise NoSuchRun(NO_RUNS)
    return Groups(server.store)


ROUTES = (read_groups, change_group, move_run)
