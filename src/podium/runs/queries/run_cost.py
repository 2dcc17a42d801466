"""Calculate the cost of runs from their timelines, in total or by operation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import structs

from ...store.reader import DamagedRun, RunSummary, StoreReader
from ...values.column import Document, DocumentPart, encode_rows
from ...values.phase import Phase
from ...values.request import Outcome
from ...values.usage import FullUsage, Usage, sum_usage
from ...views.run_state.model_usage import USAGE_KINDS, usage_of_event
from ...views.run_state.tree import OperationNode, RunView
from .run_listing import RUN_COLUMNS, RunRow, RunTotals, make_run_row


class CostList(Document, frozen=True, kw_only=True):
    """The costs of runs, individually and in total, and the runs that cannot be read."""

    runs: list[dict[str, object]]
    usage: FullUsage
    damaged: Sequence[DamagedRun]


class CostNode(DocumentPart, frozen=True, kw_only=True):
    """An operation with its own usage, and its total usage, which includes that of the operations below it."""

    path: str
    agent: str
    trigger: str
    engine: str
    outcome: Outcome | None
    own: FullUsage
    total: FullUsage
    children: list[CostNode]


class CostTree(Document, frozen=True, kw_only=True):
    """The costs of one run by operation."""

    run: str
    state: Phase
    agent: str
    started_at: float
    usage: FullUsage
    tree: CostNode | None


def list_costs(runs: Sequence[RunRow], damaged: Sequence[DamagedRun] = ()) -> CostList:
    """Return the costs of runs, individually and in total."""
    total = FullUsage.of(sum_usage(run.usage for run in runs))
    return CostList(runs=encode_rows(runs, RUN_COLUMNS), usage=total, damaged=damaged)


def build_cost_tree(run_view: RunView, *, state: Phase, now: float) -> CostTree:
    """Return the costs of one run by operation."""
    started = run_view.started
    assert started is not None
    usage = structs.replace(run_view.usage, seconds=now - run_view.started_at)
    tree = None if run_view.root is None else _build_cost_node(run_view.root, now)
    return CostTree.of(run_view, state=state, agent=started.agent, usage=usage, tree=tree)


def _build_cost_node(node: OperationNode, now: float) -> CostNode:
    children = [_build_cost_node(child, now) for child in node.children]
    return CostNode.of(node, own=node.own_usage, total=node_usage(node, now), children=children)


def make_cost_row(summary: RunSummary, usages: Iterable[Usage], *, now: float) -> RunRow:
    """Return a run as a row with the sum of these usages, with `seconds` set to the run's duration."""
    row = make_run_row(summary, now=now)
    usage = structs.replace(sum_usage(usages), seconds=row.seconds)
    return structs.replace(row, totals=RunTotals(usage=usage))


def read_run_cost(reader: StoreReader, summary: RunSummary, *, now: float) -> RunRow:
    """Return a run with its usage, excluding that of its workers. Only the entries that record usage are decoded.

    Entries that a fork shares with another run count only in that run.
    """
    entries = reader.read_entries(summary.id, summary.first.seq + summary.started.shared, kinds=tuple(USAGE_KINDS))
    return make_cost_row(summary, (usage_of_event(entry.event) for entry in entries), now=now)


def node_usage(node: OperationNode, now: float) -> Usage:
    """Return the usage of an operation and of all operations below it."""
    return structs.replace(node.usage, seconds=(now if node.ended is None else node.ended) - node.started)
