"""Select the runs that are recent enough to list, and return runs and groups as JSON fields."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from ..store.reader import RunSummary
from ..views.run_groups import Arrangement, Group
from .run_lookup import derive_run_state, find_wakeup_time, is_over

MOST_ENDED = 20
"""The maximum number of ended runs in a list, not counting pinned ones."""


def filter_recent_runs(runs: list[RunSummary], *, pinned: Container[str] = ()) -> list[RunSummary]:
    """Return the runs that have not ended or are pinned, and the most recent others. `runs` is sorted newest first."""
    ended = [summary for summary in runs if is_over(summary) and summary.id not in pinned]
    old = {summary.id for summary in ended[MOST_ENDED:]}
    return [summary for summary in runs if summary.id not in old]


def run_summary_fields(summary: RunSummary, now: float) -> dict[str, Any]:
    """Return the JSON fields that describe a run in a list of runs."""
    started = summary.started
    run_state = derive_run_state(summary)
    return {
        "id": summary.id,
        "state": run_state,
        "agent": started.agent,
        "request": started.request.text,
        "repo": started.repo,
        "forked_from": started.forked_from,
        "started_at": summary.first.at,
        "wakes_at": find_wakeup_time(summary),
        "seconds": (now if run_state == "running" else summary.last.at) - summary.first.at,
        "entries": summary.last.seq,
    }


def run_group_fields(run: str, arrangement: Arrangement) -> dict[str, Any]:
    """Return a run's group, name and flags as JSON fields. A run is archived individually or with its group."""
    grouped_run, group = arrangement.grouped_runs[run], arrangement.group_of(run)
    assert group is not None
    return {
        "group": group.tag,
        "name": grouped_run.name,
        "pinned": grouped_run.is_pinned,
        "archived": arrangement.is_archived(run),
    }


def group_fields(group: Group) -> dict[str, Any]:
    """Return the JSON fields that describe a group in a list of groups."""
    return {
        "id": group.tag,
        "name": group.name,
        "kind": group.home.kind,
        "repo": group.home.repo,
        "team": group.home.team,
        "pinned": group.is_pinned,
        "archived": group.is_archived,
        "position": group.position,
    }
