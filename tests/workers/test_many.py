"""Many workers, few places, and commanders that come and go."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from anyio import create_task_group

from podium import App
from podium.processes.commander_main import open_and_command
from podium.values.event import RunEnded, RunResumed
from podium.workers.delegate import delegate_to_worker

from .worker_lab import SILENT, Yard, gone, hand


async def test_twenty_workers_share_four_places_and_all_end(yard: Yard) -> None:
    yard.set("workers: 4\n")
    crew: dict[str, Sequence[Any]] = {f"feat/{number}": [SILENT if number < 4 else "done"] for number in range(20)}
    runs = await yard.hire_all(crew, tools=None, is_reader=True)
    yard.command()
    await yard.called(4)
    at_first = yard.workers(*runs)

    for run in runs[:4]:
        yard.stop(run)

    ends = [await yard.ended(run) for run in runs]
    await yard.over()
    assert [end.outcome for end in ends] == ["cancelled"] * 4 + ["succeeded"] * 16
    assert len(at_first) == 4
    assert most_at_once(yard, runs) == 4
    yard.check(*runs)


def most_at_once(yard: Yard, runs: list[str]) -> int:
    """How many runs were worked on at the same moment, by their timelines."""
    at_work: set[str] = set()
    most = 0
    for entry in sorted((entry for run in runs for entry in yard.entries(run)), key=lambda entry: entry.at):
        if isinstance(entry.event, RunResumed):
            at_work.add(entry.run)
        elif isinstance(entry.event, RunEnded):
            at_work.discard(entry.run)
        most = max(most, len(at_work))
    return most


async def test_in_a_repository_that_says_so_one_works_after_the_other(yard: Yard) -> None:
    (yard.repo.path / "podium.yaml").write_text("workers: 1\n")
    runs = await yard.hire_all({f"feat/{number}": ["done"] for number in range(3)}, tools=None, is_reader=True)

    yard.command()

    await yard.over()
    moments = [
        entry.at for run in runs for entry in yard.entries(run) if isinstance(entry.event, RunResumed | RunEnded)
    ]
    assert len(moments) == 6
    assert moments == sorted(moments)
    yard.check(*runs)


async def test_a_limit_that_is_raised_counts_while_the_commander_lives(yard: Yard) -> None:
    yard.set("workers: 1\n")
    runs = await yard.hire_all({"feat/one": [SILENT], "feat/two": [SILENT]}, tools=None, is_reader=True)
    yard.command()
    await yard.called(1)

    yard.set("workers: 3\n")
    runs.append(await yard.hire("feat/three", SILENT, tools=None, is_reader=True))

    await yard.called(3)
    assert len(yard.workers(*runs)) == 3


async def test_of_two_commanders_one_works_and_the_other_ends(yard: Yard) -> None:
    run = await yard.hire("feat/one", SILENT)
    both = [yard.command(), yard.command()]
    await yard.called(1)
    late = yard.command()

    await gone(late.pid)

    assert late.wait() == 0
    assert len(yard.workers(run)) == 1
    yard.stop(run)
    assert (await yard.ended(run)).outcome == "cancelled"
    await yard.over()
    assert [process.wait() for process in both] == [0, 0]
    assert len(yard.events(run, RunResumed)) == 1
    yard.check(run)


async def test_a_commander_that_dies_takes_its_workers_along_and_leaves_room_for_the_next(yard: Yard) -> None:
    run = await yard.hire("feat/one", {"says": "done", "silent": 1})
    first = yard.command()
    await yard.called(1)

    first.kill()
    first.wait()

    await yard.deserted()
    yard.command()
    assert (await yard.ended(run)).outcome == "succeeded"
    await yard.over()
    yard.check(run)


async def test_nobody_is_forgotten_who_is_hired_while_a_commander_ends(yard: Yard) -> None:
    async with App(yard.settings(), environ=yard.environ) as app, create_task_group() as group:
        for number in range(6):
            hire = partial(
                delegate_to_worker,
                app.launcher,
                hand("done", tools=None),
                "go",
                at=yard.repo.path,
                branch=f"feat/{number}",
            )
            run = await hire(is_reader=True)
            group.start_soon(open_and_command, yard.environ)

            assert (await yard.ended(run)).outcome == "succeeded"
    await yard.deserted()
    yard.check()


async def test_a_run_that_somebody_else_works_on_is_left_to_them(yard: Yard) -> None:
    run = await yard.hire("feat/one", SILENT, is_reader=True)
    async with App(yard.settings(), environ=yard.environ) as mine, mine.resume(run) as resumed:
        await yard.called(1)
        commander = yard.command()
        second = await yard.hire("feat/two", "two", is_reader=True)
        assert (await yard.ended(second)).outcome == "succeeded"
        yard.stop(run)
        assert (await resumed.result()).outcome == "cancelled"

    await yard.over()
    assert commander.wait() == 0
    assert len(yard.events(run, RunResumed)) == 1
    yard.check(run, second)
