"""Ending workers: asked first, then terminated, then killed, and nothing of them survives."""

from __future__ import annotations

import signal

from anyio import fail_after
from anyio.lowlevel import checkpoint

from podium.values.event import (
    ActionBegan,
    ModelReplied,
    RunResumed,
    RunStarted,
    TurnStarted,
    WorkCommitted,
    WorkerPlaced,
)

from .worker_lab import LONG, SILENT, Yard, bash, gone, write


async def test_a_worker_that_thinks_is_cancelled_and_what_it_did_is_kept(yard: Yard) -> None:
    run = await yard.hire("feat/one", write("one.txt"), SILENT)
    yard.command()
    await yard.wait_for(run, ModelReplied)
    await yard.called(2)

    yard.stop(run)

    assert (await yard.ended(run)).outcome == "cancelled"
    await yard.over()
    assert yard.commits("feat/one") == ["Unfinished: work on feat/one"]
    assert yard.file("feat/one", "one.txt") == "x"
    yard.check(run)


async def test_a_command_that_does_not_want_to_end_is_killed_with_its_worker(yard: Yard) -> None:
    run = await yard.hire("feat/one", bash("trap '' TERM INT HUP; while true; do sleep 1000; done"), "never")
    yard.command()
    yard.answer(run, await yard.asked(run), "once")
    await yard.wait_for(run, ActionBegan)

    yard.stop(run)

    assert (await yard.ended(run)).outcome == "cancelled"
    await yard.over()
    yard.check(run)


async def test_a_worker_that_hangs_is_killed(yard: Yard) -> None:
    run = await yard.hire("feat/one", write("one.txt"), SILENT)
    yard.command()
    worker = await yard.worker(run)
    await yard.called(2)
    worker.kill(signal.SIGSTOP)

    yard.stop(run)

    assert (await yard.ended(run)).outcome == "cancelled"
    await yard.over()
    assert yard.file("feat/one", "one.txt") == "x"
    assert len(yard.events(run, WorkCommitted)) == 1
    yard.check(run)


async def test_a_worker_whose_checkout_is_still_being_prepared_is_cancelled_at_once(yard: Yard) -> None:
    yard.set("worktrees:\n  setup: touch begun; sleep 999\n")
    run = await yard.hire("feat/one", "never")
    yard.command()
    with fail_after(LONG):
        while not (yard.path("feat/one") / "begun").exists():
            await checkpoint()  # nothing tells that a command has begun

    yard.stop(run)

    assert (await yard.ended(run)).outcome == "cancelled"
    await yard.over()
    assert yard.events(run, RunResumed, WorkerPlaced)[1:] == []
    yard.check(run)


async def test_a_worker_that_was_killed_in_a_command_leaves_nothing_of_its_sandbox_when_it_is_cancelled(
    yard: Yard,
) -> None:
    run = await yard.hire("feat/one", bash("sleep 999"), "never")
    commander = yard.command()
    guarded = yard.path("feat/one") / ".envrc"
    await yard.wait_for(run, ActionBegan)
    with fail_after(LONG):
        while not guarded.exists():
            await checkpoint()  # nothing tells that a command has begun
    commander.kill()
    await gone(commander.pid)
    await yard.deserted()

    yard.stop(run)
    yard.command()

    assert (await yard.ended(run)).outcome == "cancelled"
    await yard.over()
    assert not guarded.exists()
    yard.check(run)


async def test_workers_are_cancelled_that_wait_for_their_turn_or_for_those_they_follow(yard: Yard) -> None:
    yard.set("workers: 1\n")
    first = await yard.hire("feat/one", SILENT)
    queued = await yard.hire("feat/two", "two")
    following = await yard.hire("feat/three", "three", follows=["feat/two"])
    yard.command()
    await yard.wait_for(first, TurnStarted)

    yard.stop(queued)

    assert (await yard.ended(queued)).outcome == "cancelled"
    ended = await yard.ended(following)
    assert ended.outcome == "failed"
    assert "feat/two, which it was to follow, was cancelled" in str(ended.failure)
    assert yard.events(queued, TurnStarted) == []
    yard.stop(first)
    assert (await yard.ended(first)).outcome == "cancelled"
    await yard.over()
    assert not yard.path("feat/two").exists()
    yard.check(first, queued, following)


async def test_a_worker_that_waits_for_permission_is_cancelled_for_good(yard: Yard) -> None:
    run = await yard.hire("feat/one", write("one.txt"), "done", allow=())
    yard.command()
    asked = await yard.asked(run)

    yard.stop(run)

    assert (await yard.ended(run)).outcome == "cancelled"
    await yard.over()
    length = len(yard.entries(run))
    yard.answer(run, asked, "once")
    yard.stop(run)
    yard.command()
    await yard.over()
    assert len(yard.entries(run)) == length
    assert not (yard.path("feat/one") / "one.txt").exists()
    yard.check(run)


async def test_a_worker_that_nobody_has_begun_with_is_cancelled(yard: Yard) -> None:
    run = await yard.hire("feat/one", "one")
    yard.stop(run)

    yard.command()

    assert (await yard.ended(run)).outcome == "cancelled"
    await yard.over()
    assert yard.events(run, TurnStarted) == []
    assert isinstance(yard.events(run)[0], RunStarted)
    assert len(yard.events(run, RunResumed)) == 1
    yard.check(run)
