"""The loop of a host on a real queue."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import psycopg
import pytest
from anyio import Event, create_task_group, fail_after

from podium.core.placement import JobClaims, JobPlacement
from podium.fleet.host_loop import (
    FullLimits,
    HandBack,
    HostLoop,
    JobSweep,
    LeaseAnswer,
    LeaseRefused,
    LeaseWon,
    ReadLimits,
    RunJob,
    RunLeases,
    UnfinishedJobs,
    read_no_limits,
)
from podium.values.errors import PlacementUnavailable
from podium.values.fleet_job import FleetJob, HostOffer, JobClaim

from .engines import PATIENCE, Engine, claim_jobs, get_runs, submit_runs


@dataclass
class Lab:
    """Counts what hosts do. The work on a run lasts until the run is released, or not at all if `is_instant`."""

    is_instant: bool = True
    started: Counter[str] = field(default_factory=Counter)
    ended: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    most_at_once: int = 0
    lost: set[str] = field(default_factory=set)
    _at_once: int = 0
    _gates: dict[str, Event] = field(default_factory=dict)
    _changed: Event = field(default_factory=Event)

    async def run_job(self, claim: JobClaim, epoch: int) -> HandBack | None:
        run = claim.job.run
        self.started[run] += 1
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        self._note()
        try:
            if not self.is_instant:
                await self._gates.setdefault(run, Event()).wait()
        except BaseException:
            self.stopped.append(run)
            raise
        else:
            self.ended.append(run)
            return None
        finally:
            self._at_once -= 1
            self._note()

    async def win_lease(self, job: FleetJob) -> LeaseAnswer:
        return LeaseRefused(reason="over") if job.run in self.ended else LeaseWon(epoch=1)

    async def holds_lease(self, run: str) -> bool:
        return run not in self.lost

    def report(self, text: str) -> None:
        self.reports.append(text)
        self._note()

    def release(self, run: str) -> None:
        self._gates.setdefault(run, Event()).set()

    def _note(self) -> None:
        self._changed.set()
        self._changed = Event()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        with fail_after(PATIENCE):
            while not condition():
                await self._changed.wait()

    @asynccontextmanager
    async def run_host(
        self,
        placement: JobClaims,
        *,
        slots: int = 4,
        run_job: RunJob | None = None,
        leases: RunLeases | None = None,
        read_limits: ReadLimits = read_no_limits,
    ) -> AsyncIterator[HostLoop]:
        """Run a host within the block, and drain it at the end."""
        loop = HostLoop(
            placement,
            HostOffer(host="h"),
            slots=slots,
            run_job=run_job or self.run_job,
            leases=leases or self,
            report=self.report,
            read_limits=read_limits,
        )
        async with create_task_group() as group:
            group.start_soon(loop.run)
            yield loop
            loop.drain(grace=0)


async def wait_until_empty(placement: JobPlacement) -> None:
    with fail_after(PATIENCE):
        while True:
            try:
                if not await placement.list_jobs():
                    return
            except PlacementUnavailable:
                pass
            await anyio.sleep(0.02)


async def test_a_host_works_on_all_jobs_and_never_on_more_than_its_slots(engine: Engine) -> None:
    lab = Lab()
    async with engine.connect() as commander, engine.connect() as one, engine.connect() as two:
        await submit_runs(commander, *(f"r{number}" for number in range(30)))
        async with lab.run_host(one, slots=2), lab.run_host(two, slots=1):
            await wait_until_empty(commander)

    assert lab.started == Counter({f"r{number}": 1 for number in range(30)})
    assert lab.most_at_once <= 3
    assert lab.reports == []


async def test_a_job_that_is_submitted_while_the_host_is_idle_starts_at_once(engine: Engine) -> None:
    lab = Lab()
    async with engine.connect() as commander, engine.connect() as placement, lab.run_host(placement):
        await submit_runs(commander, "first")
        await lab.wait_until(lambda: lab.ended == ["first"])
        begin = time.monotonic()
        await submit_runs(commander, "second")
        await lab.wait_until(lambda: lab.ended == ["first", "second"])

    assert time.monotonic() - begin < 2.0


@dataclass
class Answers:
    """Leases that are answered in advance, run by run."""

    answers: dict[str, list[LeaseAnswer]]

    async def win_lease(self, job: FleetJob) -> LeaseAnswer:
        return self.answers[job.run].pop(0)

    async def holds_lease(self, run: str) -> bool:
        return True


async def test_the_lease_decides_and_not_the_claim(engine: Engine) -> None:
    lab = Lab()
    leases = Answers(
        {
            "over": [LeaseRefused(reason="over")],
            "held": [LeaseRefused(reason="held"), LeaseWon(epoch=7)],
            "won": [LeaseWon(epoch=1)],
            "unfit": [LeaseRefused(reason="unfit")],
        }
    )
    async with engine.connect() as placement:
        await submit_runs(placement, "over", "held", "won", "unfit")
        async with lab.run_host(placement, leases=leases):
            await wait_until_empty(placement)

    assert lab.started == Counter(held=1, won=1)
    assert lab.reports == ["run unfit is not allowed on this host; its job was removed"]


async def test_a_lost_claim_stops_the_work_only_if_the_lease_is_lost_too(engine: Engine) -> None:
    lab = Lab(is_instant=False, lost={"taken"})
    async with engine.connect(lease=0.6) as placement, engine.connect(lease=0.6) as other:
        await submit_runs(other, "taken", "kept")
        async with lab.run_host(placement):
            await lab.wait_until(lambda: lab.started.total() == 2)
            await forget_claims(engine)
            await lab.wait_until(lambda: lab.stopped == ["taken"])
            lab.release("kept")
            await lab.wait_until(lambda: lab.ended == ["kept"])


async def forget_claims(engine: Engine) -> None:
    """Make all claims invalid without a notification, as if other hosts had taken the jobs over."""
    async with await psycopg.AsyncConnection.connect(engine.url, autocommit=True) as connection:
        await connection.execute("UPDATE podium_queue.job SET queue_manager_id = gen_random_uuid()")


async def test_a_host_takes_no_job_of_a_team_that_is_at_its_limit(engine: Engine) -> None:
    lab = Lab()
    full = [frozenset({"busy"})]

    async def read_limits() -> FullLimits:
        return FullLimits(teams=full[0])

    async with engine.connect() as placement:
        await placement.submit(FleetJob(run="r1", team="busy"))
        await placement.submit(FleetJob(run="r2", team="other"))
        async with lab.run_host(placement, read_limits=read_limits):
            await lab.wait_until(lambda: lab.ended == ["r2"])
            full[0] = frozenset()
            await lab.wait_until(lambda: lab.ended == ["r2", "r1"])


async def test_a_job_that_the_queue_has_twice_is_worked_on_once() -> None:
    lab = Lab(is_instant=False)
    claims = [JobClaim(job=FleetJob(run="r1"), token=token, handle=token) for token in ("1", "2")]
    placement = FixedClaims(claims)
    async with lab.run_host(placement):
        await lab.wait_until(lambda: lab.started.total() == 1)
        lab.release("r1")
        await lab.wait_until(lambda: lab.ended == ["r1"])

    assert lab.started == Counter(r1=1)
    assert placement.finished == ["2"]


@dataclass
class FixedClaims:
    """An engine that gives these jobs to the first host that asks, and nothing later."""

    claims: list[JobClaim]
    finished: list[str] = field(default_factory=list)
    lease_seconds: float = 30.0

    async def claim(self, offer: HostOffer, free: int) -> list[JobClaim]:
        claims, self.claims = self.claims, []
        return claims

    async def renew(self, claims: Sequence[JobClaim]) -> frozenset[str]:
        return frozenset()

    async def hand_back(self, claim: JobClaim, *, delay: float = 0.0) -> bool:
        return True

    async def finish(self, claim: JobClaim) -> bool:
        self.finished.append(claim.token)
        return True

    async def wait_for_change(self, timeout: float) -> frozenset[str]:
        await anyio.sleep(timeout)
        return frozenset()


async def test_cancelling_a_job_stops_the_work_on_it_at_once(engine: Engine) -> None:
    lab = Lab(is_instant=False)
    async with engine.connect() as commander, engine.connect() as placement, lab.run_host(placement) as host:
        await submit_runs(commander, "r1", "r2")
        await lab.wait_until(lambda: lab.started.total() == 2)
        begin = time.monotonic()

        assert await commander.cancel("r1")
        await lab.wait_until(lambda: lab.stopped == ["r1"])

        assert time.monotonic() - begin < 2.0
        assert host.runs == ["r2"]


async def test_a_host_that_drains_finishes_its_jobs_and_claims_no_more(engine: Engine) -> None:
    lab = Lab(is_instant=False)
    async with engine.connect() as commander, engine.connect() as placement:
        async with lab.run_host(placement, slots=1) as host:
            await submit_runs(commander, "r1", "r2")
            await lab.wait_until(lambda: lab.started.total() == 1)
            host.drain()
            lab.release("r1")
            await lab.wait_until(lambda: lab.ended == ["r1"])
        assert [(status.job.run, status.state) for status in await commander.list_jobs()] == [("r2", "queued")]


async def test_a_host_that_drains_hands_back_what_is_not_done_in_time(engine: Engine) -> None:
    lab = Lab(is_instant=False)
    async with engine.connect() as commander, engine.connect() as one, engine.connect() as two:
        await submit_runs(commander, "r1")
        async with lab.run_host(one) as host:
            await lab.wait_until(lambda: lab.started.total() == 1)
            host.drain(grace=math.inf)
            host.drain(grace=0)
            await lab.wait_until(lambda: lab.stopped == ["r1"])
        lab.release("r1")
        async with lab.run_host(two):
            await wait_until_empty(commander)

    assert lab.ended == ["r1"]


async def test_work_that_fails_is_reported_and_handed_back(engine: Engine) -> None:
    lab = Lab()

    async def fail(claim: JobClaim, epoch: int) -> None:
        raise RuntimeError("no disk")

    async with engine.connect() as placement:
        await submit_runs(placement, "r1")
        async with lab.run_host(placement, run_job=fail):
            await lab.wait_until(lambda: bool(lab.reports))
        [status] = await placement.list_jobs()

    assert lab.reports == ["run r1 was handed back: no disk"]
    assert status.state == "queued"


async def test_a_job_that_outlasts_its_lease_many_times_starts_once(engine: Engine) -> None:
    lab = Lab(is_instant=False)
    async with engine.connect(lease=0.6) as one, engine.connect(lease=0.6) as two:
        await submit_runs(one, "long")
        async with lab.run_host(one), lab.run_host(two):
            await lab.wait_until(lambda: lab.started.total() == 1)
            await anyio.sleep(2.5)  # four leases: the time is what this test is about
            lab.release("long")
            await wait_until_empty(two)

    assert lab.started == Counter(long=1)
    assert lab.ended == ["long"]


async def test_work_goes_on_while_the_server_restarts_and_nothing_is_lost(own_engine: Engine) -> None:
    assert own_engine.stop is not None
    assert own_engine.start is not None
    lab = Lab(is_instant=False)
    async with own_engine.connect(lease=8.0) as commander, own_engine.connect(lease=8.0) as placement:
        await submit_runs(commander, "r1", "r2", "r3")
        async with lab.run_host(placement, slots=2):
            await lab.wait_until(lambda: lab.started.total() == 2)
            own_engine.stop()
            lab.release("r1")
            await lab.wait_until(lambda: lab.ended == ["r1"])
            own_engine.start()
            await lab.wait_until(lambda: lab.started.total() == 3)
            lab.release("r2")
            lab.release("r3")
            await wait_until_empty(commander)

    assert lab.started == Counter(r1=1, r2=1, r3=1)
    assert lab.stopped == []
    assert len(lab.reports) <= 2


HOST_PROGRAM = """
import anyio, sys
from podium.fleet.host_loop import HostLoop, LeaseWon
from podium.values.fleet_job import HostOffer
from tests.fleet.engines import Engine

class Leases:
    async def win_lease(self, job):
        return LeaseWon(epoch=1)

async def run_job(claim, epoch):
    print(claim.job.run, flush=True)
    await anyio.sleep_forever()

async def main():
    async with Engine(url=sys.argv[1]).connect(lease=1.0) as placement:
        offer = HostOffer(host="victim")
        await HostLoop(placement, offer, slots=1, run_job=run_job, leases=Leases(), report=print).run()

anyio.run(main)
"""


async def test_the_jobs_of_a_host_that_is_killed_are_taken_over_within_the_lease_and_a_second(engine: Engine) -> None:
    async with engine.connect(lease=1.0) as commander:
        await submit_runs(commander, "r1")
        with subprocess.Popen([sys.executable, "-c", HOST_PROGRAM, engine.url], stdout=subprocess.PIPE) as victim:
            assert victim.stdout is not None
            assert victim.stdout.readline() == b"r1\n"
            victim.kill()
            begin = time.monotonic()

            await claim_jobs(commander)

    assert time.monotonic() - begin < 2.0


async def test_an_unfinished_run_without_a_job_is_queued_again(engine: Engine) -> None:
    missing = FleetJob(run="missing", labels=("gpu",), priority=2)

    async def find_unfinished() -> UnfinishedJobs:
        return UnfinishedJobs(jobs=[FleetJob(run="queued"), FleetJob(run="claimed"), missing])

    async with engine.connect() as placement:
        await submit_runs(placement, "claimed")
        await claim_jobs(placement)
        await submit_runs(placement, "queued")
        sweep = JobSweep(placement, find_unfinished)

        assert await sweep.queue_missing_jobs() == ["missing"]
        assert await sweep.queue_missing_jobs() == []

        [status] = [status for status in await placement.list_jobs() if status.job.run == "missing"]
        assert status.job == missing


async def test_a_job_that_is_held_without_a_lease_is_queued_again(engine: Engine) -> None:
    async def find_unfinished() -> UnfinishedJobs:
        return UnfinishedJobs(jobs=[FleetJob(run="held"), FleetJob(run="working")], running=frozenset({"working"}))

    async with engine.connect() as liar, engine.connect() as other:
        await submit_runs(liar, "held", "working")
        claims = await claim_jobs(liar, 2)
        sweep = JobSweep(other, find_unfinished, stuck_seconds=0)

        assert await sweep.queue_missing_jobs() == ["held"]

        assert await liar.renew(claims) == {"held"}
        assert get_runs(await claim_jobs(other)) == ["held"]


@pytest.mark.slow
async def test_no_job_is_lost_or_done_twice_while_hosts_come_and_go(engine: Engine) -> None:
    lab = Lab()
    count = 1000
    async with engine.connect() as commander, engine.connect() as stable, engine.connect() as fleeting:
        async with create_task_group() as group:
            group.start_soon(submit_runs, commander, *(f"r{number}" for number in range(count)))
            async with lab.run_host(stable, slots=4):
                while lab.started.total() < count // 2:
                    async with lab.run_host(fleeting, slots=4):
                        begun = lab.started.total()
                        await lab.wait_until(lambda: lab.started.total() > begun + 20)  # noqa: B023 - same iteration
                await lab.wait_until(lambda: len(lab.ended) == count)
                await wait_until_empty(commander)

    assert set(lab.started.values()) == {1}
