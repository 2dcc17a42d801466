"""Every surface shows the same phase of a run: the lists, the reports, the API and the state of an A2A task."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import chdir, closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from podium.cli.root import podium
from podium.store.reader import StoreReader
from podium.store.run_leases import OwnerId, register_owner
from podium.store.store_connection import open_connection
from podium.store.worker_index import build_worker_insert
from podium.values.action import Action
from podium.values.event import (
    Event,
    Noticed,
    OperationStarted,
    PermissionAsked,
    QuestionAsked,
    RunEnded,
    RunPaused,
    RunResumed,
    RunStarted,
    ToolCalled,
    TurnEnded,
    TurnStarted,
    WorkerSent,
)
from podium.values.phase import Lease, Phase
from podium.values.request import Request
from podium.values.worker_task import WorkerTask

from .api_client import ApiClient
from .conftest import Site

REQUEST = Request(text="go")
ACTION = Action(run="r", agent="worker", tool="bash", arguments={})
LATER = 4e9
TASK = "a2a/greeter"

RESUMED = (
    RunResumed(host="here", pid=1),
    OperationStarted(agent="worker", trigger="request", request=REQUEST),
)
IN_TURN = (*RESUMED, TurnStarted(agent="worker", engine="scripted", prompt="go"))
CALLING = (*IN_TURN, ToolCalled(id="c", action=ACTION))
ASKING = (*CALLING, PermissionAsked(id="p", action=ACTION, reason="no rule"))


class Scene(NamedTuple):
    """A worker's run, and how each surface shows where it stands."""

    name: str
    events: tuple[Event, ...]
    lease: Lease
    phase: Phase
    worker: str
    task: str


WORKING = "TASK_STATE_WORKING"
SCENES = (
    Scene("new", (), "none", "queued", "queued", "TASK_STATE_SUBMITTED"),
    Scene("noted", (Noticed(text="It is rehearsed."),), "none", "queued", "queued", "TASK_STATE_SUBMITTED"),
    Scene(
        "refused by a host",
        (RunResumed(host="there", pid=1), Noticed(text="Host there cannot work on this run: no key")),
        "none",
        "queued",
        "queued",
        "TASK_STATE_SUBMITTED",
    ),
    Scene("claimed", (), "held", "running", "starting", WORKING),
    Scene("claimed and killed", (), "lost", "resumable", "resumable", WORKING),
    Scene("starting", RESUMED, "held", "running", "starting", WORKING),
    Scene("thinking", IN_TURN, "held", "running", "thinking", WORKING),
    Scene("using a tool", CALLING, "held", "running", "tool_call", WORKING),
    Scene("waiting for permission", ASKING, "held", "running", "waiting_permission", WORKING),
    Scene(
        "waiting for an answer",
        (*IN_TURN, QuestionAsked(id="q", text="Red?")),
        "held",
        "running",
        "waiting_permission",
        WORKING,
    ),
    Scene("with a worker", (*RESUMED, WorkerSent(run="other")), "held", "running", "tool_call", WORKING),
    Scene("between turns", (*IN_TURN, TurnEnded(outcome="succeeded", text="ok")), "held", "running", "idle", WORKING),
    Scene("paused", (*IN_TURN, RunPaused()), "none", "paused", "paused", WORKING),
    Scene("pausing", (*IN_TURN, RunPaused()), "held", "paused", "paused", WORKING),
    Scene("waiting for a limit", (*IN_TURN, RunPaused(until=LATER)), "none", "waiting", "waiting_limit", WORKING),
    Scene("limit has reset", (*IN_TURN, RunPaused(until=1.0)), "none", "waiting", "waiting_limit", WORKING),
    Scene("resumed later", (*IN_TURN, RunPaused(), RESUMED[0]), "none", "resumable", "resumable", WORKING),
    Scene("killed", ASKING, "lost", "resumable", "resumable", WORKING),
    Scene("interrupted", CALLING, "none", "resumable", "resumable", WORKING),
    Scene("succeeded", (RunEnded(outcome="succeeded"),), "none", "succeeded", "complete", "TASK_STATE_COMPLETED"),
    Scene("failed", (*ASKING, RunEnded(outcome="failed")), "lost", "failed", "failed", "TASK_STATE_FAILED"),
    Scene("too late", (*IN_TURN, RunEnded(outcome="timed_out")), "none", "timed_out", "failed", "TASK_STATE_FAILED"),
    Scene("stopped", (RunEnded(outcome="cancelled"),), "held", "cancelled", "cancelled", "TASK_STATE_CANCELED"),
)


@dataclass(kw_only=True)
class Shown:
    """What each surface says about each run, keyed by run."""

    runs: dict[str, dict[str, str]] = field(default_factory=dict)
    workers: dict[str, dict[str, str]] = field(default_factory=dict)
    tasks: dict[str, str] = field(default_factory=dict)


def run_id(scene: Scene) -> str:
    return f"{SCENES.index(scene):04x}"


@pytest.fixture(scope="module")
def shown(site: Site) -> Iterator[Shown]:
    for scene in SCENES:
        task = WorkerTask(root=str(site.repo), path=str(site.repo), name=scene.name, endpoint=TASK)
        site.write_run(run_id(scene), RunStarted(agent="worker", request=REQUEST, errand=task), *scene.events)
        statement, values = build_worker_insert(run_id(scene), task)
        with closing(sqlite3.connect(site.store)) as connection, connection:
            connection.execute(statement, values)
            connection.execute("UPDATE worker SET is_open = 0")  # no commander may start the worker
    hold_runs(site)
    with ApiClient(site) as client:
        yield Shown(
            runs={
                "ps": by_id(read_command(site, "ps", "--all")["runs"]),
                "status": by_id(one for part in ("active", "ended") for one in read_command(site, "status")[part]),
                "show": {run_id(scene): read_command(site, "show", run_id(scene))["state"] for scene in SCENES},
                "results": {run_id(scene): read_command(site, "results", run_id(scene))["state"] for scene in SCENES},
                "list of the API": by_id(client.read("/api/runs")["runs"]),
                "API": {run_id(scene): client.read(f"/api/runs/{run_id(scene)}")["state"] for scene in SCENES},
            },
            workers={
                "workers": by_id(read_command(site, "workers", "--all")["workers"]),
                "API": by_id(client.read("/api/workers")["workers"]),
            },
            tasks={run_id(scene): read_task(client, run_id(scene)) for scene in SCENES},
        )


def hold_runs(site: Site) -> None:
    """Give each run its owner: this process, one that has died, or none."""
    alive, dead = OwnerId(), OwnerId()
    with closing(open_connection(site.store, create=False)) as store:
        register_owner(store, alive)
        register_owner(store, dead)
        store.execute("UPDATE owner SET born = 'another process' WHERE id = ?", (dead.id,))
        owners: dict[Lease, str | None] = {"held": alive.id, "lost": dead.id, "none": None}
        for scene in SCENES:
            store.execute("UPDATE run SET owner = ? WHERE id = ?", (owners[scene.lease], run_id(scene)))


def read_command(site: Site, *words: str) -> Any:
    environ = {"PODIUM_HOME": str(site.studio.settings.home), "PODIUM_MODEL": "", "NO_COLOR": "1"}
    with chdir(site.repo):
        done = CliRunner().invoke(podium, [*words, "--json"], env=environ)
    return json.loads(done.stdout)


def read_task(client: ApiClient, run: str) -> str:
    query = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": run}}
    return str(client.command(f"/{TASK}", query)["result"]["status"]["state"])


def by_id(rows: Any) -> dict[str, str]:
    return {row["id"]: row["state"] for row in rows}


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_all_surfaces_agree_on_where_a_run_stands(site: Site, shown: Shown, scene: Scene) -> None:
    run = run_id(scene)
    with StoreReader(site.store) as reader:
        summary = reader.read_summary(run)

    assert (summary.lease, summary.phase) == (scene.lease, scene.phase)
    assert {name: states.get(run) for name, states in shown.runs.items()} == dict.fromkeys(shown.runs, scene.phase)
    assert {name: states[run] for name, states in shown.workers.items()} == dict.fromkeys(shown.workers, scene.worker)
    assert shown.tasks[run] == scene.task
