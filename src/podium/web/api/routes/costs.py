"""The tokens and costs of runs: in total, by run, by agent, by model and over time."""

from __future__ import annotations

import time
from typing import Any

from litestar import get

from ....runs import find
from ....runs.cost_overview import cost_overview_fields
from ....runs.run_cost import RunCost, costs_fields
from ....runs.run_listing import RUN_COLUMNS, make_run_row
from ....runs.run_lookup import open_reader
from ....store.reader import DamagedRun, StoreReader
from ....values.column import encode_row
from ....values.errors import StoreCorrupt
from ....values.event import SCHEMA
from ..route_parameters import RunPrefix, Server
from ..scopes import may_read


@get("/api/costs", guards=[may_read], sync_to_thread=True)
def read_costs(server: Server) -> dict[str, Any]:
    """Return the usage of every run, newest first, and the total by agent, by model and over time."""
    if not server.store.exists():
        return cost_overview_fields([]) | costs_fields([])
    now = time.time()
    costs, histories = [], []
    with StoreReader(server.store) as reader:
        runs, damaged = reader.read_run_list()
        for summary in runs:
            try:
                history = server.costs.read(reader, summary, now=now)
            except StoreCorrupt as error:
                damaged.append(DamagedRun(summary.id, error))
                continue
            histories.append(history)
            costs.append(RunCost.of_usages(make_run_row(summary, now=now), (one.usage for one in history.points)))
    return cost_overview_fields(histories) | costs_fields(costs, damaged)


@get("/api/costs/{run:str}", guards=[may_read], sync_to_thread=True)
def read_run_costs(run: RunPrefix, server: Server) -> dict[str, Any]:
    """Return what a run and its workers used, by agent, by model and over time, and when its budget will be used up."""
    now = time.time()
    with open_reader(server.store) as reader:
        summary = reader.read_summary(find.resolve(reader, run, repo=server.repo).run)
        own, workers = server.costs.read_with_workers(reader, summary, now=now)
    overview = cost_overview_fields([own, *workers], budget=own.budget, is_active=summary.phase == "running")
    return {
        "schema": SCHEMA,
        "run": encode_row(make_run_row(summary, now=now), RUN_COLUMNS),
        **overview,
        "wall": cost_overview_fields([own])["wall"],
    }


ROUTES = (read_costs, read_run_costs)
