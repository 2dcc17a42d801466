"""Cancelling workers: asked to stop, then terminated, then killed, and nothing of them survives."""

from __future__ import annotations

import signal

from anyio import fail_after
from anyio.lowlevel import checkpoint

from podium.core.placement import WorkerOptions
from podium.values.event import (
    ActionBegan,
    ModelReplied,
    RunResumed,
    RunStarted,
    TurnStarted,
    WorkCommitted,
    WorkerPlaced,
)

from .worker_lab import LONG, SILENT, WorkerLab, bash, wait_exited, write


async def test_a_worker_that_waits_for_its_model_is_cancelled_and_its_work_is_kept(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", write("one.txt"), SILENT)
    lab.start_commander()
    await lab.wait_for_event(run, ModelReplied)
    await lab.wait_called(2)

    lab.stop(run)

    assert (await lab.wait_ended(run)).outcome == "cancelled"
    await lab.wait_finished()
    assert lab.commits("feat/one") == ["Unfinished: work on feat/one"]
    assert lab.read_file("feat/one", "one.txt") == "x"
    lab.assert_clean_end(run)


async def test_a_command_that_ignores_signals_is_killed_with_its_worker(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", bash("trap '' TERM INT HUP; while true; do sleep 1000; done"), "never")
    lab.start_commander()
    lab.answer(run, await lab.wait_asked(run), "once")
    await lab.wait_for_event(run, ActionBegan)

    lab.stop(run)

    assert (await lab.wait_ended(run)).outcome == "cancelled"
    await lab.wait_finished()
    lab.assert_clean_end(run)


async def test_a_worker_that_hangs_is_killed(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", write("one.txt"), SILENT)
    lab.start_commander()
    worker = await lab.wait_worker(run)
    await lab.wait_called(2)
    worker.kill(signal.SIGSTOP)

    lab.stop(run)

    assert (await lab.wait_ended(run)).outcome == "cancelled"
    await lab.wait_finished()
    assert lab.read_file("feat/one", "one.txt") == "x"
    assert len(lab.events(run, WorkCommitted)) == 1
    lab.assert_clean_end(run)


async def test_a_worker_whose_checkout_is_still_being_prepared_is_cancelled_at_once(lab: WorkerLab) -> None:
    lab.write_settings("worktrees:\n  setup: touch begun; sleep 999\n")
    run = await lab.delegate("feat/one", "never")
    lab.start_commander()
    with fail_after(LONG):
        while not (lab.worktree_path("feat/one") / "begun").exists():
            await checkpoint()  # there is no event for the start of a command

    lab.stop(run)

    assert (await lab.wait_ended(run)).outcome == "cancelled"
    await lab.wait_finished()
    assert lab.events(run, RunResumed, WorkerPlaced)[1:] == []
    lab.assert_clean_end(run)


async def test_a_worker_that_was_killed_in_a_command_leaves_nothing_of_its_sandbox_when_it_is_cancelled(
    lab: WorkerLab,
) -> None:
    run = await lab.delegate("feat/one", bash("sleep 999"), "never")
    commander = lab.start_commander()
    guarded = lab.worktree_path("feat/one") / ".envrc"
    await lab.wait_for_event(run, ActionBegan)
    with fail_after(LONG):
        while not guarded.exists():
            await checkpoint()  # there is no event for the start of a command
    commander.kill()
    await wait_exited(commander.pid)
    await lab.wait_no_processes()

    lab.stop(run)
    lab.start_commander()

    assert (await lab.wait_ended(run)).outcome == "cancelled"
    await lab.wait_finished()
    assert not guarded.exists()
    lab.assert_clean_end(run)


async def test_queued_workers_and_those_that_wait_for_others_are_cancelled(lab: WorkerLab) -> None:
    lab.write_settings("workers: 1\n")
    first = await lab.delegate("feat/one", SILENT)
    queued = await lab.delegate("feat/two", "two")
    following = await lab.delegate("feat/three", "three", options=WorkerOptions(after=("feat/two",)))
    lab.start_commander()
    await lab.wait_for_event(first, TurnStarted)

    lab.stop(queued)

    assert (await lab.wait_ended(queued)).outcome == "cancelled"
    ended = await lab.wait_ended(following)
    assert ended.outcome == "failed"
    assert "it depends on feat/two, which was cancelled" in str(ended.failure)
    assert lab.events(queued, TurnStarted) == []
    lab.stop(first)
    assert (await lab.wait_ended(first)).outcome == "cancelled"
    await lab.wait_finished()
    assert not lab.worktree_path("feat/two").exists()
    lab.assert_clean_end(first, queued, following)


async def test_a_worker_that_waits_for_permission_is_cancelled_for_good(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", write("one.txt"), "done", allow=())
    lab.start_commander()
    asked = await lab.wait_asked(run)

    lab.stop(run)

    assert (await lab.wait_ended(run)).outcome == "cancelled"
    await lab.wait_finished()
    length = len(lab.entries(run))
    lab.answer(run, asked, "once")
    lab.stop(run)
    lab.start_commander()
    await lab.wait_finished()
    assert len(lab.entries(run)) == length
    assert not (lab.worktree_path("feat/one") / "one.txt").exists()
    lab.assert_clean_end(run)


async def test_a_worker_that_has_not_been_started_is_cancelled(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", "one")
    lab.stop(run)

    lab.start_commander()

    assert (await lab.wait_ended(run)).outcome == "cancelled"
    await lab.wait_finished()
    assert lab.events(run, TurnStarted) == []
    assert isinstance(lab.events(run)[0], RunStarted)
    assert len(lab.events(run, RunResumed)) == 1
    lab.assert_clean_end(run)
