"""Calculate the cost of runs from their timelines, in total or by operation, and return it as JSON fields."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec import structs

from ..store.reader import DamagedRun, RunSummary, StoreReader
from ..values.column import encode_row
from ..values.event import SCHEMA, decode_entry
from ..values.phase import Phase
from ..values.usage import Usage, sum_usage
from ..views.run_usage import USAGE_KINDS, usage_of_event
from ..views.run_view import OperationNode, RunView
from .run_listing import RUN_COLUMNS, RunRow, make_run_row


class RunCost(NamedTuple):
    """A run, and its usage, excluding that of its workers."""

    run: RunRow
    usage: Usage

    @classmethod
    def of_usages(cls, run: RunRow, usages: Iterable[Usage]) -> RunCost:
        """Return the cost of a run: the sum of these usages, with `seconds` set to the run's duration."""
        return cls(run, structs.replace(sum_usage(usages), seconds=run.seconds))


def read_run_cost(reader: StoreReader, summary: RunSummary, *, now: float) -> RunCost:
    """Return the usage of a run. For speed, only the entries that record usage are decoded.

    Entries that a fork shares with another run count only in that run.
    """
    run = make_run_row(summary, now=now)
    rows = reader.read_rows_of_kinds(summary.id, tuple(USAGE_KINDS), after=summary.first.seq + summary.started.shared)
    return RunCost.of_usages(run, (usage_of_event(decode_entry(one.line, run=summary.id).event) for one in rows))


def costs_fields(costs: Sequence[RunCost], damaged: Sequence[DamagedRun] = ()) -> dict[str, Any]:
    """Return the costs of runs, individually and in total, and the runs that cannot be read, as JSON fields."""
    return {
        "schema": SCHEMA,
        "runs": [{**encode_row(cost.run, RUN_COLUMNS), "usage": structs.asdict(cost.usage)} for cost in costs],
        "usage": structs.asdict(sum_usage(cost.usage for cost in costs)),
        "damaged": [{"id": one.id, "problem": str(one.error)} for one in damaged],
    }


def node_usage(node: OperationNode, now: float) -> Usage:
    """Return the usage of an operation and of all operations below it."""
    return structs.replace(node.usage, seconds=(now if node.ended is None else node.ended) - node.started)


def cost_tree_fields(word: Phase, run_view: RunView, *, now: float) -> dict[str, Any]:
    """Return the costs of one run by operation as JSON fields."""
    started = run_view.started
    assert started is not None
    return {
        "schema": SCHEMA,
        "run": run_view.run,
        "state": word,
        "agent": started.agent,
        "started_at": run_view.started_at,
        "usage": structs.asdict(structs.replace(run_view.usage, seconds=now - run_view.started_at)),
        "tree": None if run_view.root is None else cost_node_fields(run_view.root, now),
    }


def cost_node_fields(node: OperationNode, now: float) -> dict[str, Any]:
    """Return an operation's own usage and its total usage as JSON fields."""
    return {
        "path": node.path,
        "agent": node.agent,
        "trigger": node.trigger,
        "engine": node.engine,
        "outcome": node.outcome,
        "own": structs.asdict(node.own_usage),
        "total": structs.asdict(node_usage(node, now)),
        "children": [cost_node_fields(child, now) for child in node.children],
    }
