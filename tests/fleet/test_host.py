"""Hosts that claim runs, work on them, hand them back and take them over: real processes on a real PostgreSQL."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import anyio
import psycopg
import pytest
from msgspec import structs

from podium import App, Settings, __version__
from podium.core.placement import WorkerOptions
from podium.store.run_store import RunStore
from podium.store.store_clients import register_client
from podium.system.identity import read_host_id
from podium.testing import Fails
from podium.testing.postgres_cluster import run_cluster
from podium.values.agent import Budget, Member, Permissions, Team
from podium.values.event import (
    ActionBegan,
    PermissionAnswered,
    PermissionAsked,
    RunPaused,
    RunResumed,
    WorkCommitted,
    WorkerPlaced,
    WorkerSent,
    WorkMoved,
)
from podium.values.store_address import make_postgres_address
from podium.values.team_modes import Mode

from ..workers.worker_lab import KEY, LONG, bash, make_scripted_agent, write
from .fleet_lab import LEASE, FleetLab, open_lab

BUSY = 5.0
"""Seconds by which everything can be late on a busy machine."""


@pytest.fixture
async def lab(postgres_url: str) -> AsyncIterator[FleetLab]:
    async with open_lab(postgres_url) as lab:
        yield lab


async def wait_for_text(file: Path, text: str) -> None:
    """Wait until a file exists and contains a text."""
    while not file.exists() or text not in file.read_text():  # noqa: ASYNC110 - a file
        await anyio.sleep(0.05)


async def test_a_host_does_a_delegated_task_in_a_checkout_of_its_own_pushes_the_work_and_stores_no_key(
    lab: FleetLab,
) -> None:
    await lab.start_host("alpha", "--labels", "gpu,linux", "--slots", "2")

    run = await lab.delegate("feat/one", write("one.txt", "first\n"), "done", options=WorkerOptions(labels=("gpu",)))

    assert (await lab.wait_ended(run)).outcome == "succeeded"
    assert "Queued for a host with the labels gpu." in lab.notices(run)
    [placed], [committed] = lab.events(run, WorkerPlaced), lab.events(run, WorkCommitted)
    assert placed.host == read_host_id(lab.folder / "alpha") != lab.host
    assert committed.files == ("one.txt",)
    lab.assert_intact(run)
    await lab.wait_for_job_end(run)
    shown = await lab.run_podium("hosts")
    assert shown.stdout.split()[6:11] == ["alpha", "active", "0/2", "gpu,linux", __version__]
    stored = lab.dump_store()
    assert run in stored
    assert b"one.txt".hex() in stored
    assert KEY not in stored
    assert KEY.encode().hex() not in stored


async def test_when_a_machine_is_lost_another_host_continues_from_its_last_push_within_the_lease_and_a_second(
    lab: FleetLab,
) -> None:
    await lab.start_host("alpha")
    run = await lab.delegate(
        "feat/one", write("one.txt", "first\n"), structs.replace(write("two.txt"), silent=1), "done"
    )
    await lab.wait_called(2)
    await lab.wait_pushed(run, steps=1)
    await lab.start_host("beta")
    finished = lab.finished_calls(run)
    [(old,)] = lab.query("SELECT owner FROM podium.run WHERE id = %s", run)

    await lab.kill_host("alpha")
    killed = time.time()
    (lab.folder / "alpha").rename(lab.folder / "lost-alpha")
    lab.repo.path.rename(lab.folder / "lost-repo")
    taken = await lab.wait_taken_over(run, old)

    assert taken - killed < LEASE + 1 + BUSY
    assert (await lab.wait_ended(run)).outcome == "succeeded"
    [moved] = lab.events(run, WorkMoved)
    assert (moved.host, moved.unpushed) == (read_host_id(lab.folder / "beta"), ())
    [committed] = lab.events(run, WorkCommitted)
    assert committed.files == ("one.txt", "two.txt")
    assert not (lab.folder / "alpha").exists()
    assert not lab.repo.path.exists()
    lab.assert_intact(run, finished)


async def test_a_run_that_is_in_no_queue_is_named_by_doctor_and_queued_by_resume(lab: FleetLab) -> None:
    await lab.add_host("alpha")
    run = await lab.delegate("feat/one", "done", options=WorkerOptions(labels=("gpu",)))
    lab.query("WITH gone AS (DELETE FROM podium_queue.job RETURNING 1) SELECT count(*) FROM gone")

    checked = await lab.run_podium("doctor")
    resumed = await lab.run_podium("resume", run)
    checked_again = await lab.run_podium("doctor")

    assert f"{run}: not in the fleet's queue" in checked.stdout
    assert resumed.returncode == 0, resumed.stderr
    assert lab.query("SELECT count(*) FROM podium_queue.job") == [(1,)]
    assert "not in the fleet's queue" not in checked_again.stdout
    await lab.start_host("alpha", "--labels", "gpu")
    assert (await lab.wait_ended(run)).outcome == "succeeded"


@pytest.mark.slow
async def test_a_run_is_taken_over_within_the_lease_and_a_second(lab: FleetLab) -> None:
    """The shortest of three takeovers counts: a busy machine makes some of them later."""
    names = ("alpha", "beta", "gamma", "delta")
    await lab.start_host(names[0])
    run = await lab.delegate("feat/one", {"says": "done", "silent": 3})
    times = []
    for number, (name, other) in enumerate(pairwise(names), start=1):
        await lab.wait_called(number)
        await lab.start_host(other)
        [(old,)] = lab.query("SELECT owner FROM podium.run WHERE id = %s", run)
        await lab.kill_host(name)
        killed = time.time()
        times.append(await lab.wait_taken_over(run, old) - killed)

    assert min(times) < LEASE + 1, times
    assert (await lab.wait_ended(run)).outcome == "succeeded"


async def test_a_host_that_gets_sigterm_hands_its_run_back_and_another_one_continues_with_all_files(
    lab: FleetLab,
) -> None:
    await lab.start_host("alpha", "--grace", "0.1")
    run = await lab.delegate(
        "feat/one", write("one.txt", "first\n"), structs.replace(write("two.txt"), silent=1), "done"
    )
    await lab.wait_called(2)
    finished = lab.finished_calls(run)

    assert await lab.end_host("alpha") == 0
    assert (await lab.list_hosts())["alpha"].state == "gone"
    await lab.start_host("beta")

    assert (await lab.wait_ended(run)).outcome == "succeeded"
    [moved] = lab.events(run, WorkMoved)
    assert moved.unpushed == ()
    [committed] = lab.events(run, WorkCommitted)
    assert committed.files == ("one.txt", "two.txt")
    lab.assert_intact(run, finished)


async def test_a_process_of_a_host_that_has_lost_its_run_can_still_release_it_and_end(lab: FleetLab) -> None:
    await lab.add_host("alpha")
    with psycopg.connect(lab.url, autocommit=True) as admin:
        admin.execute("INSERT INTO podium.run (id, created, owner, epoch) VALUES ('r1', 0, NULL, 0)")
        admin.execute("INSERT INTO podium.job (run) VALUES ('r1')")
        with anyio.fail_after(LONG):
            async with RunStore(make_postgres_address(lab.addresses["alpha"], lab.folder)) as store:
                lease = await store.claim_run("r1")
                admin.execute("UPDATE podium.run SET owner = 'another', epoch = epoch + 1")

                store.release_run(lease)
                await lease.wait_written()

    assert lab.query("SELECT owner, epoch FROM podium.run") == [("another", 2)]


@pytest.mark.slow
async def test_a_database_that_is_away_while_a_worker_starts_does_not_count_as_a_crash_of_the_worker() -> None:
    with run_cluster() as cluster:
        async with open_lab(cluster.create_database("away")) as lab:
            (lab.folder / "alpha").mkdir()
            (lab.folder / "alpha" / "config.yaml").write_text(
                f"sandbox: off\nworktrees: {{setup: 'touch {lab.folder}/begun; sleep 2'}}\n"
            )
            await lab.start_host("alpha")
            run = await lab.delegate("feat/one", "done", options=WorkerOptions(max_restarts=0))
            with anyio.fail_after(LONG):
                await wait_for_text(lab.folder / "begun", "")

            await anyio.to_thread.run_sync(cluster.stop, "immediate")
            try:
                with anyio.move_on_after(5):  # a worker that does not wait for the database fails in this time
                    await wait_for_text(lab.folder / "alpha" / "logs" / f"{run}.log", "cannot reach")
            finally:
                await anyio.to_thread.run_sync(cluster.start)

            assert (await lab.wait_ended(run)).outcome == "succeeded"
            lab.assert_intact(run)


@pytest.mark.slow
async def test_a_host_that_gets_sigterm_lets_its_run_end_within_the_grace_period(lab: FleetLab) -> None:
    host = await lab.start_host("alpha")
    run = await lab.delegate("feat/one", bash("sleep 1"), "done")
    await lab.wait_called(1)

    host.terminate()

    assert (await lab.wait_ended(run)).outcome == "succeeded"
    assert await lab.end_host("alpha") == 0
    assert len(lab.events(run, RunResumed)) == 1


async def test_a_host_that_cannot_do_a_run_says_why_and_another_one_takes_it(lab: FleetLab) -> None:
    (lab.folder / "alpha").mkdir()
    (lab.folder / "alpha" / "repositories").write_text("a file where the clones should be\n")
    await lab.start_host("alpha")
    run = await lab.delegate("feat/one", write("one.txt"), "done")
    refused = await lab.wait_for_entry(run, lambda entry: "alpha cannot" in getattr(entry.event, "text", ""))
    assert "repositories" in refused.event.text  # type: ignore[union-attr]

    await lab.start_host("beta")

    assert (await lab.wait_ended(run)).outcome == "succeeded"
    assert [text for text in lab.notices(run) if "cannot work" in text] == [refused.event.text]  # type: ignore[union-attr]
    assert [placed.host for placed in lab.events(run, WorkerPlaced)] == [read_host_id(lab.folder / "beta")]


async def test_a_request_from_a_host_is_answered_elsewhere_while_the_host_is_alive_and_while_it_is_dead(
    lab: FleetLab,
) -> None:
    await lab.start_host("alpha")
    run = await lab.delegate("feat/one", bash("echo 1 > one.txt"), bash("echo 2 > two.txt"), "done", allow=())

    first = await lab.wait_asked(run)
    listed = await lab.run_podium("approvals")
    assert "echo 1" in listed.stdout, listed
    assert (await lab.run_podium("approve", first.id)).returncode == 0
    second = await lab.wait_asked(run, 2)
    await lab.wait_pushed(run, steps=1)
    await lab.kill_host("alpha")
    assert (await lab.run_podium("approve", second.id)).returncode == 0
    await lab.start_host("beta")

    assert (await lab.wait_ended(run)).outcome == "succeeded"
    assert [answer.id for answer in lab.events(run, PermissionAnswered)] == [first.id, second.id]
    [committed] = lab.events(run, WorkCommitted)
    assert committed.files == ("one.txt", "two.txt")
    lab.assert_intact(run)


@pytest.mark.slow
async def test_without_a_live_host_the_worker_runs_on_its_own_machine_and_says_so(lab: FleetLab) -> None:
    await lab.add_host("alpha")

    run = await lab.delegate("feat/one", write("one.txt"), "done")
    lab.start_commander()

    assert (await lab.wait_ended(run)).outcome == "succeeded"
    assert "No fleet host is alive, so this worker runs on this machine." in lab.notices(run)
    await lab.wait_finished()


@pytest.mark.slow
async def test_a_run_that_waits_for_a_label_is_left_alone_by_everybody_else_and_can_be_stopped(lab: FleetLab) -> None:
    await lab.start_host("alpha", "--labels", "linux")

    lab.write_settings("labels: [gpu]\n")
    run = await lab.delegate("feat/one", "done")
    lab.start_commander()
    await lab.wait_finished_commanders()

    said = await lab.run_podium("delegate", "feat/two", "go", "--label", "gpu")

    assert lab.notices(run)[-1].endswith("no such host is alive, so the worker waits for one.")
    assert "labels gpu; no such host is alive, so the worker waits for one.\n" in said.stderr
    assert not lab.events(run, RunResumed)
    assert (await lab.run_podium("stop", run)).returncode == 0
    assert (await lab.wait_ended(run)).outcome == "cancelled"


@pytest.mark.slow
async def test_a_run_waits_for_the_run_before_it(lab: FleetLab) -> None:
    await lab.start_host("alpha")

    first = await lab.delegate("feat/one", write("one.txt"), "done")
    second = await lab.delegate("feat/two", write("two.txt"), "done", options=WorkerOptions(after=("feat/one",)))

    assert (await lab.wait_ended(second)).outcome == "succeeded"
    [placed], [before] = lab.events(second, WorkerPlaced), lab.events(first, WorkCommitted)
    assert placed.base == before.commit


@pytest.mark.slow
async def test_a_host_without_a_database_or_without_its_own_login_says_what_to_do(lab: FleetLab) -> None:
    with_file = await lab.run_podium("host", PODIUM_STORE=str(lab.folder / "podium.db"))
    with_owner = await lab.run_podium("host")
    added = await lab.run_podium("hosts", "add", "gamma")
    lab.addresses["gamma"] = added.stdout.strip()
    with_other = await lab.run_podium("host", "--name", "delta", PODIUM_STORE=lab.addresses["gamma"])
    not_allowed = await lab.run_podium("hosts", "add", "delta", PODIUM_STORE=lab.addresses["gamma"])
    again = await lab.run_podium("hosts", "add", "gamma")
    not_a_name = await lab.run_podium("hosts", "add", "gamma 2")
    removed = await lab.run_podium("hosts", "remove", "gamma")
    lab.addresses.clear()
    unknown = await lab.run_podium("hosts", "remove", "gamma")

    assert "hosts need a PostgreSQL store" in with_file.stderr
    assert "does not belong to a host; create a host with podium hosts add NAME" in with_owner.stderr
    assert "belongs to host gamma, not delta" in with_other.stderr
    assert (removed.returncode, [one.returncode for one in (with_file, with_owner, with_other)]) == (0, [2, 2, 2])
    assert not_allowed.returncode != 0
    assert (again.returncode, not_a_name.returncode) == (2, 2)
    assert "host gamma already exists; to change its password, first run podium hosts remove gamma" in again.stderr
    assert "host 'gamma 2' is not valid: use at most" in not_a_name.stderr
    assert "Traceback" not in not_allowed.stderr
    assert "host 'gamma' not found; available: none" in unknown.stderr
    assert added.stdout.strip().startswith("postgresql://podium_host_gamma:")
    assert added.stdout.strip().split(":")[2].partition("@")[0] not in added.stderr


async def test_a_host_does_not_start_beside_an_active_host_with_an_incompatible_podium(lab: FleetLab) -> None:
    await lab.add_host("alpha")
    await lab.add_host("beta")
    with psycopg.connect(lab.url, autocommit=True) as connection:
        connection.execute(
            # The host stays active, however long the other one takes to start.
            "UPDATE podium.host SET version = '0.0.1', state = 'active', seen = now() + interval '1 hour'"
            " WHERE name = 'alpha'"
        )

    refused = await lab.run_podium("host", PODIUM_STORE=lab.addresses["beta"])

    assert refused.returncode == 2
    assert refused.stderr.strip().endswith(
        f"Podium {__version__} on host beta is not compatible with Podium 0.0.1 on the active host alpha; "
        "update the older one, or stop alpha first"
    )
    assert (await lab.list_hosts())["beta"].state == "gone"


@pytest.mark.slow
async def test_a_run_that_waits_for_its_workers_keeps_no_slot_from_them(lab: FleetLab) -> None:
    lab.query("INSERT INTO podium.fleet_limit VALUES ('team', 'outer', 1) RETURNING 1")
    await lab.start_host("alpha", "--slots", "1")
    inner = structs.replace(make_scripted_agent(write("inner.txt"), "inner done"), name="inner", isolation="process")
    team = Team(mode="broadcast", members=(Member(agent="inner"),))
    outer = structs.replace(make_scripted_agent("outer done"), name="outer", team=team)

    async with App(lab.settings(("Write",)), environ=lab.environ) as app:
        run = await lab.create_worker(app, "feat/outer", outer, inner)

    assert (await lab.wait_ended(run)).outcome == "succeeded", lab.logs(run)
    [sent] = lab.events(run, WorkerSent)
    assert (await lab.wait_ended(sent.run)).outcome == "succeeded"
    assert lab.query("SELECT parent, team, repository FROM podium.job WHERE run = %s", sent.run) == [
        (run, "outer", str(lab.remote))
    ]
    lab.assert_intact(sent.run)
    listed = await lab.run_podium("workers", "--json")
    assert {one["id"] for one in json.loads(listed.stdout)["workers"]} == {run, sent.run}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["broadcast", "sequential"])
async def test_the_members_of_a_team_on_one_host_work_on_another_with_the_rules_of_the_person(
    lab: FleetLab, mode: Mode
) -> None:
    (lab.folder / "alpha").mkdir()
    (lab.folder / "alpha" / "config.yaml").write_text(
        "permissions: {ask: ['Bash(rm *)']}\nchecks: {test: [\"true\"]}\n"
    )
    await lab.start_host("alpha", "--slots", "1", "--labels", "lead")
    await lab.start_host("beta", "--slots", "4")
    hooks = {"before_tool": [{"command": ["true"]}]}
    inner = make_scripted_agent(write("inner.txt"), "inner done", isolation="process", other={"hooks": hooks})
    names = ("ada", "bob", "eve", "joe")
    members = tuple(Member(agent="hand", name=name, role="a builder", model="openai:m") for name in names)
    team = Team(mode=mode, members=members, options={"fallback_models": ["openai:n"]})
    outer = structs.replace(make_scripted_agent("outer done"), name="outer", team=team, source="user")
    settings = lab.settings(("Write",), budget=Budget(tokens=1_000_000))

    async with App(settings, environ=lab.environ) as app:
        run = await lab.create_worker(app, "feat/outer", outer, inner, options=WorkerOptions(labels=("lead",)))

    assert (await lab.wait_ended(run)).outcome == "succeeded", lab.logs(run)
    sent = [event.run for event in lab.events(run, WorkerSent)]
    assert len(sent) == len(names)
    for one in sent:
        assert (await lab.wait_ended(one)).outcome == "succeeded", lab.logs(one)
        assert not [text for text in lab.notices(one) if "cannot work" in text]
        lab.assert_intact(one)
    hosts = {placed.host for one in sent for placed in lab.events(one, WorkerPlaced)}
    assert read_host_id(lab.folder / "beta") in hosts


async def test_calls_of_all_machines_to_a_provider_share_one_rate(lab: FleetLab) -> None:
    with psycopg.connect(lab.url, autocommit=True) as connection:
        connection.execute("INSERT INTO podium.provider_rate VALUES ('openai', 2, 1, 1)")
    agent = make_scripted_agent(write("one.txt"), "done")

    async def run_on_another_machine(name: str) -> None:
        environ = lab.environ | {"PODIUM_HOME": str(lab.folder / name)}
        settings = Settings.load(environ, permissions=Permissions(allow=("Write",)))
        async with App(settings, environ=environ) as app:
            await app.run(agent, "go", repo=lab.repo.path)

    began = time.monotonic()
    async with anyio.create_task_group() as group:
        for name in ("alpha", "beta"):
            group.start_soon(run_on_another_machine, name)

    assert len(lab.server.calls) == 4
    assert time.monotonic() - began > 3 / 2, "four calls at two a second, of which the first does not wait"


@pytest.mark.slow
async def test_a_run_that_waits_for_a_limit_leaves_its_host_and_a_host_continues_it_at_its_time(lab: FleetLab) -> None:
    limit = Fails(status=429, retry_after=15, times=1)
    for name in ("alpha", "beta"):
        (lab.folder / name).mkdir()
        (lab.folder / name / "config.yaml").write_text("limits: {max_wait: 0.5}\n")
    await lab.start_host("alpha", "--slots", "1")
    run = await lab.delegate(
        "feat/one", write("one.txt", "first\n"), structs.replace(write("two.txt"), fails=limit), "done"
    )
    paused = await lab.wait_for_event(run, RunPaused)
    await lab.wait_for_job_end(run)
    # The slot of the host is free, and the host can end: another one continues the run.
    other = await lab.delegate("feat/two", "done")
    await lab.wait_ended(other)
    await lab.kill_host("alpha")
    await lab.start_host("beta")
    shown = json.loads((await lab.run_podium("ps", "--json")).stdout)["runs"]
    said = await lab.run_podium("ps")

    assert (await lab.wait_ended(run)).outcome == "succeeded"
    resumed = [entry for entry in lab.entries(run) if isinstance(entry.event, RunResumed)]
    assert paused.until <= resumed[-1].at
    assert {one["id"]: one["wakes_at"] for one in shown} == {run: paused.until, other: None}
    assert len(resumed) == 2
    assert "no process is there" not in said.stderr
    lab.assert_intact(run)


@pytest.mark.slow
async def test_a_paused_worker_leaves_its_host_and_a_host_continues_it_when_it_is_resumed(lab: FleetLab) -> None:
    await lab.start_host("alpha")
    run = await lab.delegate("feat/one", bash("sleep 2"), write("one.txt"), "done")
    await lab.wait_called(1)

    assert (await lab.run_podium("pause", run)).returncode == 0
    await lab.wait_for_job_end(run)
    assert (await lab.list_hosts())["alpha"].running == 0
    assert (await lab.run_podium("resume", run)).returncode == 0

    assert (await lab.wait_ended(run)).outcome == "succeeded"
    lab.assert_intact(run)


@pytest.mark.slow
async def test_a_host_without_the_engine_of_a_run_refuses_it(lab: FleetLab) -> None:
    lab.write_settings(f"engines:\n  helper: {{command: {sys.executable}}}\n")
    await lab.start_host("alpha")

    async with App(lab.settings(), environ=lab.environ) as app:
        agent = structs.replace(make_scripted_agent("done"), engine="helper")
        run = await lab.create_worker(app, "feat/one", agent)

    refused = await lab.wait_for_entry(run, lambda entry: "alpha cannot" in getattr(entry.event, "text", ""))
    assert "helper" in refused.event.text  # type: ignore[union-attr]
    assert (await lab.run_podium("stop", run)).returncode == 0


@pytest.mark.slow
async def test_a_rule_that_a_person_saves_applies_to_the_other_workers_on_hosts_and_no_host_can_save_one(
    lab: FleetLab,
) -> None:
    await lab.start_host("alpha")
    first = await lab.delegate("feat/one", write("shared.txt"), "done", allow=())
    second = await lab.delegate("feat/two", bash("echo 2 > two.txt"), write("shared.txt"), "done", allow=())
    asked, other = await lab.wait_asked(first), await lab.wait_asked(second)

    assert (await lab.run_podium("approve", asked.id, "--always")).returncode == 0
    assert (await lab.run_podium("approve", other.id)).returncode == 0

    assert (await lab.wait_ended(second)).outcome == "succeeded"
    assert [one.id for one in lab.events(second, PermissionAsked)] == [other.id]
    assert lab.events(second, ActionBegan)[-1].allowed_by == asked.always
    lab.assert_intact(second)
    with (
        psycopg.connect(lab.addresses["alpha"], autocommit=True) as host,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        host.execute("INSERT INTO podium.saved_rule VALUES ('m', '', 'Bash')")


@pytest.mark.slow
async def test_a_host_denies_a_request_that_nobody_answers_in_the_time_that_the_person_has_set(lab: FleetLab) -> None:
    lab.write_settings("approvals: {timeout: 1}\n")
    await lab.start_host("alpha")
    run = await lab.delegate("feat/one", bash("touch one.txt"), "then not", allow=())
    await lab.wait_asked(run)

    with register_client(lab.store):
        assert (await lab.wait_ended(run)).outcome == "succeeded"

    [answered] = lab.events(run, PermissionAnswered)
    assert (answered.decision, answered.by, answered.channel) == ("deny", "commander", "timeout")
    assert answered.comment == "nobody answered within 1 s"
    lab.assert_intact(run)
