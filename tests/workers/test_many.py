"""Many workers, few of them at a time, and commanders that start and end meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from anyio import create_task_group

from podium import App
from podium.core.placement import WorkerOptions
from podium.programs.commander import open_and_command
from podium.values.event import RunEnded, RunResumed

from .worker_lab import SILENT, WorkerLab, make_scripted_agent, wait_exited


async def test_twenty_workers_share_four_places_and_all_end(lab: WorkerLab) -> None:
    lab.write_settings("workers: 4\n")
    moves_by_branch: dict[str, Sequence[Any]] = {
        f"feat/{number}": [SILENT if number < 4 else "done"] for number in range(20)
    }
    runs = await lab.delegate_all(moves_by_branch, tools=None, options=WorkerOptions(is_reader=True))
    lab.start_commander()
    await lab.wait_called(4)
    at_first = lab.list_running_workers(*runs)

    for run in runs[:4]:
        lab.stop(run)

    ends = [await lab.wait_ended(run) for run in runs]
    await lab.wait_finished()
    assert [end.outcome for end in ends] == ["cancelled"] * 4 + ["succeeded"] * 16
    assert len(at_first) == 4
    assert max_concurrent_runs(lab, runs) == 4
    lab.assert_clean_end(*runs)


def max_concurrent_runs(lab: WorkerLab, runs: list[str]) -> int:
    """Return how many runs were active at the same moment, according to their timelines."""
    at_work: set[str] = set()
    most = 0
    for entry in sorted((entry for run in runs for entry in lab.entries(run)), key=lambda entry: entry.at):
        if isinstance(entry.event, RunResumed):
            at_work.add(entry.run)
        elif isinstance(entry.event, RunEnded):
            at_work.discard(entry.run)
        most = max(most, len(at_work))
    return most


@pytest.mark.slow
async def test_a_repository_can_limit_its_workers_to_one_at_a_time(lab: WorkerLab) -> None:
    (lab.repo.path / "podium.yaml").write_text("workers: 1\n")
    runs = await lab.delegate_all(
        {f"feat/{number}": ["done"] for number in range(3)}, tools=None, options=WorkerOptions(is_reader=True)
    )

    lab.start_commander()

    await lab.wait_finished()
    moments = [entry.at for run in runs for entry in lab.entries(run) if isinstance(entry.event, RunResumed | RunEnded)]
    assert len(moments) == 6
    assert moments == sorted(moments)
    lab.assert_clean_end(*runs)


@pytest.mark.slow
async def test_a_limit_that_is_raised_counts_while_the_commander_lives(lab: WorkerLab) -> None:
    lab.write_settings("workers: 1\n")
    runs = await lab.delegate_all(
        {"feat/one": [SILENT], "feat/two": [SILENT]}, tools=None, options=WorkerOptions(is_reader=True)
    )
    lab.start_commander()
    await lab.wait_called(1)

    lab.write_settings("workers: 3\n")
    runs.append(await lab.delegate("feat/three", SILENT, tools=None, options=WorkerOptions(is_reader=True)))

    await lab.wait_called(3)
    assert len(lab.list_running_workers(*runs)) == 3


async def test_of_two_commanders_one_works_and_the_other_ends(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", SILENT)
    both = [lab.start_commander(), lab.start_commander()]
    await lab.wait_called(1)
    late = lab.start_commander()

    await wait_exited(late.pid)

    assert late.wait() == 0
    assert len(lab.list_running_workers(run)) == 1
    lab.stop(run)
    assert (await lab.wait_ended(run)).outcome == "cancelled"
    await lab.wait_finished()
    assert [process.wait() for process in both] == [0, 0]
    assert len(lab.events(run, RunResumed)) == 1
    lab.assert_clean_end(run)


async def test_a_commander_that_dies_takes_its_workers_along_and_leaves_room_for_the_next(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", {"says": "done", "silent": 1})
    first = lab.start_commander()
    await lab.wait_called(1)

    first.kill()
    first.wait()

    await lab.wait_no_processes()
    lab.start_commander()
    assert (await lab.wait_ended(run)).outcome == "succeeded"
    await lab.wait_finished()
    lab.assert_clean_end(run)


async def test_no_worker_is_lost_that_is_delegated_while_a_commander_exits(lab: WorkerLab) -> None:
    async with App(lab.settings(), environ=lab.environ) as app, create_task_group() as group:
        for number in range(6):
            agent = make_scripted_agent("done", tools=None)
            run = await lab.create_worker(app, f"feat/{number}", agent, options=WorkerOptions(is_reader=True))
            group.start_soon(open_and_command, lab.environ)

            assert (await lab.wait_ended(run)).outcome == "succeeded"
    await lab.wait_no_processes()
    lab.assert_clean_end()


async def test_a_run_that_another_process_works_on_is_left_alone(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", SILENT, options=WorkerOptions(is_reader=True))
    async with App(lab.settings(), environ=lab.environ) as mine, mine.resume(run) as resumed:
        await lab.wait_called(1)
        commander = lab.start_commander()
        second = await lab.delegate("feat/two", "two", options=WorkerOptions(is_reader=True))
        assert (await lab.wait_ended(second)).outcome == "succeeded"
        lab.stop(run)
        assert (await resumed.result()).outcome == "cancelled"

    await lab.wait_finished()
    assert commander.wait() == 0
    assert len(lab.events(run, RunResumed)) == 1
    lab.assert_clean_end(run, second)
