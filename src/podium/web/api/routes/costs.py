"""The tokens and costs of runs: in total, by run, by agent, by model and over time."""

from __future__ import annotations

import time

from litestar import get
from msgspec import structs

from ....runs import find
from ....runs.queries.cost_overview import (
    RunCostOverview,
    StoreCostOverview,
    build_cost_overview,
    list_costs,
    make_cost_row,
)
from ....runs.queries.run_listing import RUN_COLUMNS, make_run_row
from ....runs.queries.run_lookup import open_reader
from ....store.reader import DamagedRun, StoreReader
from ....values.column import encode_row
from ....values.errors import StoreCorrupt
from ..route_parameters import RunPrefix, Server
from ..scopes import may_read


@get("/api/costs", guards=[may_read], sync_to_thread=True)
def read_costs(server: Server) -> StoreCostOverview:
    """Return the usage of every run, newest first, and the total by agent, by model and over time."""
    now = time.time()
    costs, histories = [], []
    damaged: list[DamagedRun] = []
    if server.store.exists():
        with StoreReader(server.store) as reader:
            runs, damaged = reader.read_run_list()
            for summary in runs:
                try:
                    history = server.costs.read(reader, summary, now=now)
                except StoreCorrupt as error:
                    damaged.append(DamagedRun(summary.id, str(error)))
                    continue
                histories.append(history)
                costs.append(make_cost_row(summary, (one.usage for one in history.points), now=now))
    listed = list_costs(costs, damaged)
    return StoreCostOverview.of(build_cost_overview(histories), **structs.asdict(listed))


@get("/api/costs/{run:str}", guards=[may_read], sync_to_thread=True)
def read_run_costs(run: RunPrefix, server: Server) -> RunCostOverview:
    """Return what a run and its workers used, by agent, by model and over time, and when its budget will be used up."""
    now = time.time()
    with open_reader(server.store) as reader:
        summary = reader.read_summary(find.resolve(reader, run, repo=server.repo).run)
        own, workers = server.costs.read_with_workers(reader, summary, now=now)
    overview = build_cost_overview([own, *workers], budget=own.budget, is_active=summary.phase == "running")
    row = encode_row(make_run_row(summary, now=now), RUN_COLUMNS)
    return RunCostOverview.of(overview, run=row, wall=own.wall)


ROUTES = (read_costs, read_run_costs)
