"""`podium cost`: what runs cost, by run or by operation."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click
from msgspec import structs

from ...runs.run_lookup import NO_RUNS, looking
from ...runs.run_state import State, state
from ...setup.settings import Settings
from ...store.sqlite.reader import Reader, Summary
from ...values.event import SCHEMA, decode
from ...values.usage import Usage, total
from ...views.run_view import SPENDING, Node, Picture, spent
from ..terminal.measure import ago, counted, cut, span, width
from ..terminal.run_tree import Signs, signs_for
from ..terminal.say import say
from ..terminal.text import as_json, visible
from .ps import fields as run_fields

NARROWEST_NAME = 8


@click.command("cost")
@click.argument("run", required=False)
@click.option("--json", "is_json", is_flag=True, help="Print it as JSON.")
def command(run: str | None, is_json: bool) -> None:
    """Show what RUN cost: calls, tokens, money and time of each agent's part and of all below it.

    Without RUN, show the totals of all runs, the newest first, and their sum.
    """
    store = Settings.load().store
    most = shutil.get_terminal_size().columns
    if run is None:
        bills: list[Bill] = []
        if store.exists():
            with looking(store) as reader:
                bills = [billed(reader, summary, now=time.time()) for summary in reader.runs()]
        if is_json:
            click.echo(as_json(bills_fields(bills)))
        elif bills:
            click.echo("\n".join(bills_table(bills, now=time.time(), most=most)))
        else:
            say(NO_RUNS)
        return
    with looking(store) as reader:
        id = reader.find(run)
        word = state(reader.summary(id))
        picture = Picture.of(reader.entries(id))
    now = time.time() if word == "running" else picture.at
    if is_json:
        click.echo(as_json(picture_fields(word, picture, now=now)))
    else:
        click.echo("\n".join(picture_table(picture, now=now, most=most, signs=signs_for(sys.stdout.encoding))))


# All runs


class Bill(NamedTuple):
    """A run as a list tells of it, and what it used, from its beginning to its end."""

    run: dict[str, Any]
    usage: Usage


def billed(reader: Reader, summary: Summary, *, now: float) -> Bill:
    """What a run used. Only what says so is read, which is little of a long timeline."""
    run = run_fields(summary, now)
    rows = reader.rows(summary.id)
    used = total(spent(decode(row.line).event) for row in rows if row.kind in SPENDING)
    return Bill(run, structs.replace(used, seconds=run["seconds"]))


def bills_table(bills: Sequence[Bill], *, now: float, most: int) -> list[str]:
    """The runs, then their sum; the agent takes what the others leave of the width."""
    usages = [bill.usage for bill in bills]
    names = [*(bill.run["id"] for bill in bills), f"sum of {counted(len(bills), 'run')}"]
    started = Column("STARTED", [*(ago(now - bill.run["started_at"]) for bill in bills), ""], spare=5)
    agents = ["AGENT", *(visible(bill.run["agent"]) for bill in bills), ""]
    columns = [started, *amounts([*usages, total(usages)])]
    lines = table("RUN", [Name(name, "") for name in names], columns, most=most - NARROWEST_NAME - 2)
    room = max(most - width(lines[0]) - 2, NARROWEST_NAME)
    return [f"{line}  {cut(agent, room)}".rstrip() for line, agent in zip(lines, agents, strict=True)]


def bills_fields(bills: Sequence[Bill]) -> dict[str, Any]:
    """The same for programs."""
    return {
        "schema": SCHEMA,
        "runs": [{**bill.run, "usage": structs.asdict(bill.usage)} for bill in bills],
        "usage": structs.asdict(total(bill.usage for bill in bills)),
    }


# One run


class Line(NamedTuple):
    """A line of a run's tree: whose it is, and what was used."""

    name: Name
    usage: Usage


class Name(NamedTuple):
    """Who a line is about, which may be cut, and what stands before that."""

    guide: str
    text: str


def picture_table(picture: Picture, *, now: float, most: int, signs: Signs) -> list[str]:
    """The operations with everything below them, and what those used themselves that have something below."""
    if picture.root is None:
        return [f"run {picture.run} has not begun, and cost nothing"]
    lines = list(told(picture.root, now=now, signs=signs))
    rows = table("AGENT", [line.name for line in lines], amounts([line.usage for line in lines]), most=most)
    return [row.rstrip() for row in rows]


def told(node: Node, *, now: float, signs: Signs, before: str = "", below: str = "") -> Iterator[Line]:
    """The lines of an operation and all below it."""
    yield Line(Name(before, visible(node.agent)), node_usage(node, now))
    if node.children and node.own.calls:
        # Its time is the whole span; how much of it was its own nobody knows.
        yield Line(Name(below + signs.past, "own"), node.own)
    for child in node.children:
        corner, side = (signs.last, "   ") if child is node.children[-1] else (signs.between, signs.past)
        yield from told(child, now=now, signs=signs, before=below + corner, below=below + side)


def node_usage(node: Node, now: float) -> Usage:
    """What an operation and all below it used, from its beginning to its end."""
    return structs.replace(node.usage, seconds=(now if node.ended is None else node.ended) - node.started)


def picture_fields(word: State, picture: Picture, *, now: float) -> dict[str, Any]:
    """The same for programs."""
    started = picture.started
    assert started is not None
    return {
        "schema": SCHEMA,
        "run": picture.run,
        "state": word,
        "agent": started.agent,
        "started_at": picture.started_at,
        "usage": structs.asdict(structs.replace(picture.usage, seconds=now - picture.started_at)),
        "tree": None if picture.root is None else node_fields(picture.root, now),
    }


def node_fields(node: Node, now: float) -> dict[str, Any]:
    """What an operation used itself, and with all below it."""
    return {
        "path": node.path,
        "agent": node.agent,
        "trigger": node.trigger,
        "engine": node.engine,
        "outcome": node.outcome,
        "own": structs.asdict(node.own),
        "total": structs.asdict(node_usage(node, now)),
        "children": [node_fields(child, now) for child in node.children],
    }


# Amounts in columns


class Column(NamedTuple):
    """Some cells below a title. A column to `spare` is left out where it is empty, or where there is no room.

    Those with most to spare go first.
    """

    title: str
    cells: list[str]
    spare: int = 0

    @property
    def width(self) -> int:
        return max(map(width, (self.title, *self.cells)))


def amounts(usages: Sequence[Usage]) -> list[Column]:
    """The columns of what was used, a cell for each."""
    return [
        Column("CALLS", [f"{usage.calls:,}" if usage.calls else "" for usage in usages], spare=4),
        Column("IN", [tokens(usage, usage.input_tokens) for usage in usages], spare=1),
        Column("OUT", [tokens(usage, usage.output_tokens) for usage in usages], spare=1),
        Column("CACHED", [tokens(usage, usage.cached_tokens) for usage in usages], spare=3),
        Column("COST", [money(usage) for usage in usages]),
        Column("TOOK", [span(usage.seconds) if usage.seconds else "" for usage in usages], spare=2),
    ]


def tokens(usage: Usage, count: int) -> str:
    """So many of its tokens: `1,200`, `~1,200` where they are estimated, nothing where there are none."""
    return f"{'~' if usage.estimated else ''}{count:,}" if count else ""


def money(usage: Usage) -> str:
    """`$0.0123`, `~$0.0123` where it is estimated, `unpriced` where nobody knows; nothing where no call was made."""
    if not usage.calls and not usage.usd:
        return ""
    if usage.unpriced >= usage.calls and not usage.usd:
        return "unpriced"
    known = "<$0.0001" if 0 < usage.usd < 0.0001 else f"${usage.usd:,.4f}"
    return f"{'~' if usage.estimated else ''}{known}{' + unpriced' if usage.unpriced else ''}"


def table(title: str, names: Sequence[Name], columns: Sequence[Column], *, most: int) -> list[str]:
    """Names and amounts in at most so many columns of a terminal, as far as that can be."""
    wanted = max(width(title), *(width(name.guide) + width(name.text) for name in names))
    least = max(width(title), *(width(name.guide) + min(width(name.text), NARROWEST_NAME) for name in names))
    shown = [column for column in columns if any(column.cells) or not column.spare]
    while least + taken(shown) > most and (spare := max(shown, key=lambda column: column.spare)).spare:
        shown.remove(spare)
    room = max(least, min(wanted, most - taken(shown)))
    rows = [title, *(name.guide + cut(name.text, room - width(name.guide)) for name in names)]
    rows = [row + " " * (room - width(row)) for row in rows]
    for column in shown:
        rows = [f"{row}  {cell:>{column.width}}" for row, cell in zip(rows, (column.title, *column.cells), strict=True)]
    return rows


def taken(columns: Sequence[Column]) -> int:
    """How much of a line the columns take."""
    return sum(column.width + 2 for column in columns)
