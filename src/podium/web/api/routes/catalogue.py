"""Agents, teams and models, the costs of all runs, groups of runs, and the results of `podium doctor`."""

from __future__ import annotations

import os
import time
from contextvars import Context
from typing import Any

import msgspec
from litestar import get

from ....roster.discovery import load_roster
from ....roster.roster_fields import graph_fields, list_teams, roster_fields, team_fields
from ....roster.team_definition import find_team
from ....runs.health_checks import collect_facts
from ....runs.model_choice import models_fields
from ....runs.run_cost import costs_fields, read_run_cost
from ....runs.run_listing import group_fields, run_group_fields
from ....setup.settings import Settings
from ....store.sqlite.group_rows import Groups
from ....store.sqlite.reader import StoreReader
from ....values.event import SCHEMA
from ..scopes import may_read
from ..server_context import ServerContext


@get("/api/agents", guards=[may_read], sync_to_thread=True)
def list_agents(server: ServerContext, repo: str = "") -> dict[str, Any]:
    """List the agents that a repository can use."""
    roster = load_roster(server.find_place(repo), server.settings.home)
    return {"schema": SCHEMA, **_to_fields(roster_fields(roster))}


@get("/api/teams", guards=[may_read], sync_to_thread=True)
def read_teams(server: ServerContext, repo: str = "") -> dict[str, Any]:
    """List the teams that a repository can use."""
    roster = load_roster(server.find_place(repo), server.settings.home)
    return {"schema": SCHEMA, "teams": msgspec.to_builtins(list(list_teams(roster)))}


@get("/api/teams/{name:str}", guards=[may_read], sync_to_thread=True)
def read_team(name: str, server: ServerContext, repo: str = "") -> dict[str, Any]:
    """Return a team: its mode, its options and its members."""
    place = server.find_place(repo)
    roster = load_roster(place, server.settings.home)
    found = find_team(name, roster, repo=place, home=server.settings.home)
    return {"schema": SCHEMA, **_to_fields(team_fields(found))}


@get("/api/agents/{name:str}/graph", guards=[may_read], sync_to_thread=True)
def read_graph(name: str, server: ServerContext, repo: str = "") -> dict[str, Any]:
    """Return the agents that work for an agent, and how they are connected."""
    team = load_roster(server.find_place(repo), server.settings.home).resolve_team(name)
    return {"schema": SCHEMA, **_to_fields(graph_fields({one.name: one for one in team}, team[0].name))}


@get("/api/costs", guards=[may_read], sync_to_thread=True)
def read_costs(server: ServerContext) -> dict[str, Any]:
    """Return the usage of every run, newest first, and the total."""
    if not server.store.exists():
        return _to_fields(costs_fields([]))
    now = time.time()
    with StoreReader(server.store) as reader:
        return _to_fields(
            costs_fields([read_run_cost(reader, one, now=now) for one in reader.read_run_list().readable])
        )


@get("/api/groups", guards=[may_read], sync_to_thread=True)
def read_groups(server: ServerContext) -> dict[str, Any]:
    """List the groups of runs, and the group of each run."""
    if not server.store.exists():
        return {"schema": SCHEMA, "groups": [], "runs": {}}
    with StoreReader(server.store) as reader, Groups(server.store) as groups:
        ids, arrangement = [one.id for one in reader.read_run_list().readable], groups.load_arrangement()
    return {
        "schema": SCHEMA,
        "groups": [group_fields(one) for one in arrangement.groups.values()],
        "runs": {run: run_group_fields(run, arrangement) for run in ids if arrangement.group_of(run)},
    }


@get("/api/doctor", guards=[may_read], sync_to_thread=True)
def read_doctor(server: ServerContext) -> dict[str, Any]:
    """Check the server's machine and its repository."""
    # The checks run their own event loops, which the context of the server's loop would forbid.
    facts = Context().run(lambda: list(collect_facts(os.environ, server.repo)))
    return {"schema": SCHEMA, "facts": [fact._asdict() for fact in facts]}


@get("/api/models", guards=[may_read], sync_to_thread=True)
def read_models(server: ServerContext, repo: str = "") -> dict[str, Any]:
    """List the available models. Model servers on this machine are not searched for."""
    settings = Settings.load(repo=server.find_place(repo), store=server.store, home=server.settings.home)
    return _to_fields(models_fields(settings, os.environ, ()))


def _to_fields(value: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(value)
    return fields


ROUTES = (
    list_agents,
    read_teams,
    read_team,
    read_graph,
    read_costs,
    read_groups,
    read_doctor,
    read_models,
)
