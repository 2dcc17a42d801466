"""What the placement engine does, with a real PostgreSQL server."""

from __future__ import annotations

import time
from collections import Counter

import psycopg
import pytest
from anyio import create_task_group, fail_after, sleep

from podium.core.placement import JobPlacement
from podium.values.errors import Mistake, PlacementUnavailable
from podium.values.fleet_job import FleetJob, HostOffer, JobStatus

from .engines import ANY_HOST, PATIENCE, Engine, claim_jobs, get_runs, submit_runs

SHORT_LEASE = 1.0


async def test_a_job_is_claimed_as_it_was_submitted_and_finished_once(engine: Engine) -> None:
    job = FleetJob(
        run="r1", labels=("gpu", "linux"), priority=3, team="t", provider="p", repository="git@host:x", store_version=2
    )
    async with engine.connect() as commander, engine.connect() as host:
        assert await commander.submit(job)
        assert await commander.list_jobs() == [JobStatus(job=job, state="queued")]

        [claim] = await claim_jobs(host, offer=HostOffer(host="h", labels=("linux", "gpu", "ssd"), store_version=2))

        assert claim.job == job
        assert await commander.list_jobs() == [JobStatus(job=job, state="claimed")]
        assert await host.finish(claim)
        assert not await host.finish(claim)
        assert await commander.list_jobs() == []


async def test_of_two_claimants_one_gets_the_job(engine: Engine) -> None:
    async with engine.connect() as one, engine.connect() as other:
        for number in range(10):
            await one.submit(FleetJob(run=f"r{number}"))
            claims: list[str] = []

            async def claim(placement: JobPlacement, into: list[str]) -> None:
                into += get_runs(await placement.claim(ANY_HOST, 1))

            async with create_task_group() as group:
                group.start_soon(claim, one, claims)
                group.start_soon(claim, other, claims)

            assert claims == [f"r{number}"]


async def test_a_job_can_be_claimed_as_soon_as_its_submission_returns(engine: Engine) -> None:
    async with engine.connect() as commander, engine.connect() as host:
        for number in range(200):
            await commander.submit(FleetJob(run=f"r{number}"))
            [claim] = await host.claim(ANY_HOST, 1)
            await host.finish(claim)


async def test_a_second_submission_of_a_run_is_no_second_job(engine: Engine) -> None:
    async with engine.connect() as placement:
        assert await placement.submit(FleetJob(run="r1"))

        assert not await placement.submit(FleetJob(run="r1"))
        assert not await placement.submit(FleetJob(run="r1", labels=("gpu",), priority=2))
        [claim] = await claim_jobs(placement)
        assert not await placement.submit(FleetJob(run="r1"))

        assert len(await placement.list_jobs()) == 1
        await placement.finish(claim)
        assert await placement.submit(FleetJob(run="r1"))


async def test_the_highest_priority_is_claimed_first_and_equals_in_order(engine: Engine) -> None:
    async with engine.connect() as placement:
        for run, priority in (("low", -1), ("first", 0), ("second", 0), ("high", 5), ("higher", 10)):
            await placement.submit(FleetJob(run=run, priority=priority))

        order = [get_runs(await placement.claim(ANY_HOST, 1)) for _ in range(5)]

        assert order == [["higher"], ["high"], ["first"], ["second"], ["low"]]


async def test_a_host_gets_only_jobs_that_it_accepts(engine: Engine) -> None:
    async with engine.connect() as placement:
        for job in (
            FleetJob(run="gpu", labels=("gpu",)),
            FleetJob(run="both", labels=("gpu", "linux")),
            FleetJob(run="pinned", host="h2"),
            FleetJob(run="newer", store_version=9),
            FleetJob(run="full-team", team="full"),
            FleetJob(run="full-provider", provider="full"),
            FleetJob(run="plain", team="t", provider="p"),
        ):
            await placement.submit(job)
        full = frozenset({"full"})

        first = HostOffer(host="h1", labels=("gpu",), store_version=1, full_teams=full, full_providers=full)
        second = HostOffer(host="h2", labels=("linux",), store_version=9, full_teams=full)

        assert set(get_runs(await placement.claim(first, 10))) == {"gpu", "plain"}
        assert set(get_runs(await placement.claim(second, 10))) == {"pinned", "newer", "full-provider"}
        assert {status.job.run for status in await placement.list_jobs() if status.state == "queued"} == {
            "both",
            "full-team",
        }


async def test_a_host_gets_no_more_jobs_than_it_has_free_slots(engine: Engine) -> None:
    async with engine.connect() as placement:
        await submit_runs(placement, "a", "b", "c", "d", "e")

        assert get_runs(await placement.claim(ANY_HOST, 2)) == ["a", "b"]
        assert get_runs(await placement.claim(ANY_HOST, 9)) == ["c", "d", "e"]


async def test_a_cancelled_job_is_gone_and_the_host_that_works_on_it_is_told(engine: Engine) -> None:
    async with engine.connect() as commander, engine.connect() as host:
        await submit_runs(commander, "queued", "running")
        [queued, running] = await claim_jobs(host, 2)
        await host.hand_back(queued)
        while await host.wait_for_change(0.05):
            pass

        assert await commander.cancel("queued")
        assert await commander.cancel("running")
        assert not await commander.cancel("unknown")

        told: set[str] = set()
        with fail_after(PATIENCE):
            while "running" not in told:
                told |= await host.wait_for_change(1.0)
        assert await host.claim(ANY_HOST, 5) == []
        assert await host.renew([running]) == {"running"}
        assert not await host.finish(running)
        assert await commander.list_jobs() == []


async def test_a_job_that_is_handed_back_is_claimed_at_once(engine: Engine) -> None:
    async with engine.connect() as host, engine.connect() as idle:
        await submit_runs(host, "r1")
        [claim] = await claim_jobs(host)
        assert await idle.claim(ANY_HOST, 1) == []
        begin = time.monotonic()
        found: list[str] = []

        async def wait_for_job() -> None:
            while not found:
                await idle.wait_for_change(20.0)
                found.extend(get_runs(await idle.claim(ANY_HOST, 1)))

        async with create_task_group() as group:
            group.start_soon(wait_for_job)
            assert await host.hand_back(claim)

        assert found == ["r1"]
        assert time.monotonic() - begin < 10.0
        assert not await host.hand_back(claim)


async def test_a_job_can_be_handed_back_for_later(engine: Engine) -> None:
    async with engine.connect() as placement:
        await submit_runs(placement, "r1")
        [claim] = await claim_jobs(placement)
        begin = time.monotonic()

        await placement.hand_back(claim, delay=0.5)
        await claim_jobs(placement)

        assert time.monotonic() - begin >= 0.5


async def test_a_claim_that_is_not_renewed_is_taken_over_within_the_lease_and_a_second(engine: Engine) -> None:
    """The shortest of three takeovers counts: a busy machine makes some of them later."""
    times = []
    async with engine.connect(lease=SHORT_LEASE) as dead, engine.connect(lease=SHORT_LEASE) as other:
        for run in ("r1", "r2", "r3"):
            await submit_runs(dead, run)
            begin = time.monotonic()
            await claim_jobs(dead)
            claimed = time.monotonic()

            [taken] = await claim_jobs(other)

            assert time.monotonic() - begin > 0.5 * SHORT_LEASE
            times.append(time.monotonic() - claimed)
            if times[-1] < SHORT_LEASE + 1.0:
                return
            await other.finish(taken)
    pytest.fail(f"every takeover was too late: {times}")


async def test_a_host_that_wakes_up_late_does_not_disturb_the_host_that_took_over(engine: Engine) -> None:
    async with engine.connect(lease=SHORT_LEASE) as late, engine.connect(lease=SHORT_LEASE) as other:
        await submit_runs(late, "r1")
        [old] = await claim_jobs(late)
        [new] = await claim_jobs(other)

        assert await late.renew([old]) == {"r1"}
        assert not await late.finish(old)
        assert not await late.hand_back(old)

        assert [status.state for status in await other.list_jobs()] == ["claimed"]
        assert await other.renew([new]) == frozenset()
        assert await other.finish(new)


async def test_a_renewed_claim_outlives_its_lease_many_times(engine: Engine) -> None:
    async with engine.connect(lease=SHORT_LEASE) as worker, engine.connect(lease=SHORT_LEASE) as other:
        await submit_runs(worker, "long")
        [claim] = await claim_jobs(worker)
        end = time.monotonic() + 3.5 * SHORT_LEASE

        while time.monotonic() < end:
            assert await worker.renew([claim]) == frozenset()
            assert await other.claim(ANY_HOST, 1) == []
            await other.wait_for_change(0.1)

        assert await worker.finish(claim)


async def test_what_was_submitted_and_claimed_survives_a_restart_of_the_server(own_engine: Engine) -> None:
    assert own_engine.stop is not None
    assert own_engine.start is not None
    async with own_engine.connect() as commander, own_engine.connect() as host:
        await submit_runs(commander, "claimed", "queued")
        [claim] = await claim_jobs(host)
        own_engine.stop()
        with pytest.raises(PlacementUnavailable):
            await host.renew([claim])
        own_engine.start()

        with fail_after(PATIENCE):
            while True:
                try:
                    assert await host.renew([claim]) == frozenset()
                    break
                except PlacementUnavailable:
                    await sleep(0.05)

        assert await host.finish(claim)
        assert get_runs(await claim_jobs(host)) == ["queued"]
        assert await commander.submit(FleetJob(run="new"))


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.slow)])
async def test_several_claimants_drain_the_queue_without_loss(engine: Engine, count: int) -> None:
    done: Counter[str] = Counter()

    async def drain(host: JobPlacement) -> None:
        while done.total() < count:
            claims = await host.claim(ANY_HOST, 8)
            for claim in claims:
                assert await host.finish(claim)
                done[claim.job.run] += 1
            if not claims:
                await host.wait_for_change(0.1)

    async with engine.connect() as commander, engine.connect() as one, engine.connect() as two:
        with fail_after(120):
            async with create_task_group() as group:
                group.start_soon(drain, one)
                group.start_soon(drain, two)
                await submit_runs(commander, *(f"r{number}" for number in range(count)))

        assert done == Counter({f"r{number}": 1 for number in range(count)})
        assert await commander.list_jobs() == []


async def test_the_history_of_old_jobs_is_deleted_and_jobs_are_not(engine: Engine) -> None:
    async with engine.connect() as placement:
        await submit_runs(placement, "r1", "r2")
        await placement.finish((await claim_jobs(placement))[0])
        async with await psycopg.AsyncConnection.connect(engine.url, autocommit=True) as connection:
            await connection.execute("UPDATE podium_queue.job_log SET created = now() - interval '2 days'")
            await placement.delete_history()
            cursor = await connection.execute("SELECT count(*) FROM podium_queue.job_log")
            assert await cursor.fetchone() == (0,)

        assert [status.job.run for status in await placement.list_jobs()] == ["r2"]


@pytest.mark.parametrize("job", [FleetJob(run="a b"), FleetJob(run="r", labels=("a.b",)), FleetJob(run="r", host="*")])
async def test_a_name_that_is_not_plain_is_refused(engine: Engine, job: FleetJob) -> None:
    async with engine.connect() as placement:
        with pytest.raises(Mistake, match="is not valid: use at most 63 letters"):
            await placement.submit(job)
