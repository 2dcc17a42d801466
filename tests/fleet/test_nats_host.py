"""A fleet whose queue is on a NATS server: the store, the leases and the requests stay in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest

from podium import Settings
from podium.fleet.nats_placement import NatsPlacement
from podium.testing import ModelServer
from podium.testing.nats_server import NatsServer, run_nats_server
from podium.values.errors import Mistake, PlacementUnavailable
from podium.values.event import WorkCommitted
from podium.values.fleet_job import FleetJob

from ..workers.worker_lab import write
from .engines import claim_jobs
from .fleet_lab import FleetLab, create_store


@dataclass
class NatsLab(FleetLab):
    """A fleet with its queue on a NATS server."""

    placement: str = ""

    @property
    def environ(self) -> dict[str, str]:
        return {**super().environ, "PODIUM_PLACEMENT": self.placement}

    async def list_job_states(self) -> dict[str, str]:
        """Return the state of each run's job on the NATS server."""
        async with NatsPlacement(self.placement) as placement:
            return {status.job.run: status.state for status in await placement.list_jobs()}


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with run_nats_server() as server:
        yield server


@pytest.fixture
async def lab(postgres_url: str, server: NatsServer) -> AsyncIterator[NatsLab]:
    with TemporaryDirectory(prefix="pdm-") as folder:
        await anyio.to_thread.run_sync(create_store, postgres_url, Path(folder))
        async with ModelServer() as models:
            lab = NatsLab(Path(folder).resolve(), models, url=postgres_url, placement=server.url)
            try:
                yield lab
            finally:
                await lab.close()


async def test_hosts_take_jobs_from_nats_and_take_over_from_a_host_that_died(lab: NatsLab) -> None:
    await lab.start_host("alpha")
    run = await lab.delegate("feat/one", write("one.txt", "first\n"), {**write("two.txt"), "silent": 1}, "done")
    await lab.wait_called(2)
    await lab.wait_pushed(run, steps=1)
    assert await lab.list_job_states() == {run: "claimed"}
    checked = await lab.run_podium("doctor")
    assert f"{lab.placement}, a NATS server with JetStream" in checked.stdout
    finished = lab.finished_calls(run)

    await lab.kill_host("alpha")
    await lab.start_host("beta")

    assert (await lab.wait_ended(run)).outcome == "succeeded"
    [committed] = lab.events(run, WorkCommitted)
    assert committed.files == ("one.txt", "two.txt")
    lab.assert_intact(run, finished)
    assert lab.query("SELECT count(*) FROM podium_queue.job_log") == [(0,)]


@pytest.mark.slow
async def test_a_run_that_was_delegated_while_nats_was_away_is_queued_by_a_host(
    lab: NatsLab, server: NatsServer
) -> None:
    await lab.start_host("alpha")
    server.stop()
    run = await lab.delegate("feat/one", write("one.txt"), "done")
    refused = await lab.run_podium("host", PODIUM_STORE=lab.addresses["alpha"], PODIUM_HOME=str(lab.folder / "beta"))
    server.start()

    assert (await lab.wait_ended(run)).outcome == "succeeded"
    assert f"cannot connect to the NATS server {server.url}" in refused.stderr
    assert "Traceback" not in refused.stderr


async def test_hosts_set_the_lease_of_jobs_that_a_commander_with_another_lease_submitted(server: NatsServer) -> None:
    async with (
        NatsPlacement(server.url) as commander,
        NatsPlacement(server.url, lease_seconds=1) as one,
        NatsPlacement(server.url, lease_seconds=1) as other,
    ):
        await commander.submit(FleetJob(run="r1"))
        await claim_jobs(one)
        await commander.submit(FleetJob(run="r2"))

        claims = await claim_jobs(other, 2)

    assert sorted(claim.job.run for claim in claims) == ["r1", "r2"]


async def test_an_address_that_asks_for_tls_is_never_used_without_it(server: NatsServer) -> None:
    with pytest.raises(PlacementUnavailable, match="the server does not offer TLS"):
        async with NatsPlacement(server.url.replace("nats://", "tls://")):
            pass


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nats://me:secret@queue.example:4222", "the NATS server queue.example may be on another machine"),
        ("redis://me:secret@localhost", "expected pgqueuer, or the address of a NATS server"),
        ("nats://localhost:port", "expected pgqueuer, or the address of a NATS server"),
    ],
)
def test_an_address_that_is_not_safe_or_not_known_is_refused(tmp_path: Path, address: str, said: str) -> None:
    with pytest.raises(Mistake, match=said) as caught:
        Settings.load({"PODIUM_HOME": str(tmp_path), "PODIUM_PLACEMENT": address})

    assert "secret" not in str(caught.value)
    assert Settings.load({"PODIUM_HOME": str(tmp_path), "PODIUM_PLACEMENT": "tls://queue.example"}).placement
