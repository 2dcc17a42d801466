"""`podium cost`: show the cost of all runs, or of each operation in one run."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import click

from ...files.settings import Settings
from ...runs import find
from ...runs.queries.cost_overview import build_cost_tree, list_costs, node_usage, read_run_cost
from ...runs.queries.run_listing import RunRow
from ...runs.queries.run_lookup import NO_RUNS, open_reader
from ...store.reader import DamagedRun
from ...values.errors import StoreCorrupt
from ...values.plain_text import format_count
from ...values.store_address import StoreAddress
from ...values.usage import Usage, sum_usage
from ...views.run_state.tree import OperationNode, RunView
from ..output import exit_codes
from ..output.run_tree import TreeSymbols, choose_symbols
from ..output.text import (
    as_json,
    display_width,
    escape_for_terminal,
    format_age,
    format_duration,
    format_money,
    print_to_stderr,
    truncate_line,
)

NARROWEST_NAME = 8


@click.command("cost")
@click.argument("run", required=False)
@click.option("--json", "is_json", is_flag=True, help="Print the costs as JSON.")
def cost_command(run: str | None, is_json: bool) -> int:
    """Show the cost of RUN: the calls, tokens, money and time that each operation used.

    The usage of an operation includes that of the operations below it. Without RUN, list all runs with their
    costs, newest first, and the total. RUN can also be the branch or name of a worker in this repository.
    """
    store = Settings.load().store
    most = shutil.get_terminal_size().columns
    if run is None:
        costs, damaged = _read_costs(store)
        if is_json:
            click.echo(as_json(list_costs(costs, damaged)))
        elif costs:
            click.echo("\n".join(_format_costs_table(costs, now=time.time(), most=most)))
        elif not damaged:
            print_to_stderr(NO_RUNS)
        for one in damaged:
            print_to_stderr(f"run {one.id} is not counted: {one.problem}")
        return exit_codes.INTEGRITY if damaged else exit_codes.GOAL_MET
    with open_reader(store) as reader:
        id = find.resolve(reader, run).run
        word = reader.read_summary(id).phase
        run_view = RunView.from_entries(reader.read_entries(id))
    now = time.time() if word == "running" else run_view.at
    if is_json:
        click.echo(as_json(build_cost_tree(run_view, state=word, now=now)))
    else:
        click.echo(
            "\n".join(_format_cost_tree(run_view, now=now, most=most, signs=choose_symbols(sys.stdout.encoding)))
        )
    return exit_codes.GOAL_MET


# All runs


def _read_costs(store: StoreAddress) -> tuple[list[RunRow], list[DamagedRun]]:
    """Return the costs of the runs that can be read, and the runs that cannot be read, each newest first."""
    if not store.exists():
        return [], []
    costs: list[RunRow] = []
    with open_reader(store) as reader:
        runs, damaged = reader.read_run_list()
        for summary in runs:
            try:
                costs.append(read_run_cost(reader, summary, now=time.time()))
            except StoreCorrupt as error:
                damaged.append(DamagedRun(summary.id, str(error)))
    return costs, damaged


def _format_costs_table(costs: Sequence[RunRow], *, now: float, most: int) -> list[str]:
    """Return a table of the runs and their total. The agent column takes the remaining width."""
    usages = [cost.usage for cost in costs]
    names = [*(cost.summary.id for cost in costs), f"total of {format_count(len(costs), 'run')}"]
    started = Column("STARTED", [*(format_age(now - cost.summary.first.at) for cost in costs), ""], spare=5)
    agents = ["AGENT", *(escape_for_terminal(cost.started.agent) for cost in costs), ""]
    columns = [started, *build_usage_columns([*usages, sum_usage(usages)])]
    lines = format_usage_table("RUN", [TreeLabel(name, "") for name in names], columns, most=most - NARROWEST_NAME - 2)
    room = max(most - display_width(lines[0]) - 2, NARROWEST_NAME)
    return [f"{line}  {truncate_line(agent, room)}".rstrip() for line, agent in zip(lines, agents, strict=True)]


# One run


class CostLine(NamedTuple):
    """A line in a run's cost tree: a label and a usage."""

    name: TreeLabel
    usage: Usage


class TreeLabel(NamedTuple):
    """A label in a tree: the guide lines in front of it, and the text, which can be truncated."""

    guide: str
    text: str


def _format_cost_tree(run_view: RunView, *, now: float, most: int, signs: TreeSymbols) -> list[str]:
    """Return the tree of operations with their total usage. Operations with children also show their own usage."""
    if run_view.root is None:
        return [f"run {run_view.run} has not started, so it has no cost"]
    lines = list(_walk_cost_lines(run_view.root, now=now, signs=signs))
    rows = format_usage_table(
        "AGENT", [line.name for line in lines], build_usage_columns([line.usage for line in lines]), most=most
    )
    return [row.rstrip() for row in rows]


def _walk_cost_lines(
    node: OperationNode, *, now: float, signs: TreeSymbols, before: str = "", below: str = ""
) -> Iterator[CostLine]:
    """Yield the lines for an operation and all operations below it."""
    yield CostLine(TreeLabel(before, escape_for_terminal(node.agent)), node_usage(node, now))
    if node.children and node.own_usage.calls:
        # An operation's time includes the time of its children, so its own time is not known.
        yield CostLine(TreeLabel(below + signs.through, "own"), node.own_usage)
    for child in node.children:
        corner, side = (signs.last, "   ") if child is node.children[-1] else (signs.between, signs.through)
        yield from _walk_cost_lines(child, now=now, signs=signs, before=below + corner, below=below + side)


# Amounts in columns


class Column(NamedTuple):
    """A table column. If `spare` is greater than 0, the column is dropped when it is empty or the table is too wide.

    Columns with a higher `spare` are dropped first.
    """

    title: str
    cells: list[str]
    spare: int = 0

    @property
    def width(self) -> int:
        return max(map(display_width, (self.title, *self.cells)))


def build_usage_columns(usages: Sequence[Usage]) -> list[Column]:
    """Return the columns of a usage table. Each column has one cell for each item of `usages`."""
    return [
        Column("CALLS", [f"{usage.calls:,}" if usage.calls else "" for usage in usages], spare=4),
        Column("IN", [format_tokens(usage, usage.input_tokens) for usage in usages], spare=1),
        Column("OUT", [format_tokens(usage, usage.output_tokens) for usage in usages], spare=1),
        Column("CACHED", [format_tokens(usage, usage.cached_tokens) for usage in usages], spare=3),
        Column("COST", [format_cost(usage) for usage in usages]),
        Column("TOOK", [format_duration(usage.seconds) if usage.seconds else "" for usage in usages], spare=2),
    ]


def format_tokens(usage: Usage, count: int) -> str:
    """Return a token count as text: `1,200`, or `~1,200` if it is estimated. Return an empty string for zero."""
    return f"{'~' if usage.estimated else ''}{count:,}" if count else ""


def format_cost(usage: Usage) -> str:
    """Return a cost as text: `$0.0123`, `~$0.0123` if it is estimated, `unpriced` if no price is known.

    If only some prices are unknown, ` + unpriced` follows the cost. If all calls were rehearsed, return `rehearsed`; if
    there were no calls, return an empty string.
    """
    if not usage.calls and not usage.usd:
        return "rehearsed" if usage.rehearsed_calls else ""
    if usage.unpriced >= usage.calls and not usage.usd:
        return "unpriced"
    known = format_money(usage.usd)
    return f"{'~' if usage.estimated else ''}{known}{' + unpriced' if usage.unpriced else ''}"


def format_usage_table(title: str, names: Sequence[TreeLabel], columns: Sequence[Column], *, most: int) -> list[str]:
    """Return the lines of a table of names and amounts, at most `most` characters wide if possible."""
    wanted = max(display_width(title), *(display_width(name.guide) + display_width(name.text) for name in names))
    least = max(
        display_width(title),
        *(display_width(name.guide) + min(display_width(name.text), NARROWEST_NAME) for name in names),
    )
    shown = [column for column in columns if any(column.cells) or not column.spare]
    while least + _sum_column_widths(shown) > most and (spare := max(shown, key=lambda column: column.spare)).spare:
        shown.remove(spare)
    room = max(least, min(wanted, most - _sum_column_widths(shown)))
    rows = [title, *(name.guide + truncate_line(name.text, room - display_width(name.guide)) for name in names)]
    rows = [row + " " * (room - display_width(row)) for row in rows]
    for column in shown:
        width = column.width
        rows = [f"{row}  {cell:>{width}}" for row, cell in zip(rows, (column.title, *column.cells), strict=True)]
    return rows


def _sum_column_widths(columns: Sequence[Column]) -> int:
    """Return the total width of the columns, including the gap before each of them."""
    return sum(column.width + 2 for column in columns)
