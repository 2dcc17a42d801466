"""Workers that crash, hang or die with their commander, and go on in another process."""

from __future__ import annotations

import os
import random
import signal

import pytest
from anyio import create_task_group

from podium import App
from podium.runs.run_handle import drive_run
from podium.store.fault import refuse_after
from podium.store.sqlite.worktree_ledger import Ledger
from podium.store.wakeup import ensure_socket_folder
from podium.values.event import PermissionAsked, RunEnded, RunPaused, RunResumed, ToolAnswered, WorkCommitted
from podium.workers.commander import Commander
from podium.workers.wire.link import LinkLimits
from podium.workspace.git.repository import Repository
from podium.workspace.worktrees.worktree import Worktrees

from ..studio import bury
from .worker_lab import Yard, bash, call, gone, write


async def test_a_worker_that_crashes_is_started_again_and_goes_on(yard: Yard) -> None:
    run = await yard.hire("feat/one", write("one.txt"), {"says": "done", "silent": 1})
    yard.command()
    worker = await yard.worker(run)
    await yard.called(2)

    worker.kill()

    assert (await yard.ended(run)).outcome == "succeeded"
    await yard.over()
    assert [one.pid == worker.pid for one in yard.events(run, RunResumed)] == [True, False]
    assert len(yard.server.calls) == 3
    assert "process exited with code -9 (start 1)" in yard.logs(run)
    yard.check(run)


async def test_a_worker_that_crashes_again_has_failed_and_says_what_it_said_last(yard: Yard) -> None:
    run = await yard.hire("feat/one", write("one.txt"), write("two.txt"), write("three.txt"), "done")

    yard.command(PODIUM_FAULT="7")

    ended = await yard.ended(run)
    await yard.over()
    assert ended.outcome == "failed"
    assert "process exited with code 137: " in str(ended.failure)
    assert "process exited with code 137 (start 2)" in str(ended.failure)
    assert len(yard.events(run, RunResumed)) == 3  # the last one by its commander, to end it
    yard.check(run)


DIES_AT_ITS_FIRST_BIRTH = """
import os, signal, sys
from pathlib import Path

if "podium.processes.fork_server_main" in sys.orig_argv:
    died = Path(__file__).with_name("died")
    if not died.exists():
        died.touch()
        os.register_at_fork(before=lambda: os.kill(os.getpid(), signal.SIGKILL))
"""


async def test_a_run_that_can_neither_go_on_nor_be_ended_keeps_nobody_else_from_working(yard: Yard) -> None:
    broken = await yard.hire("feat/one", "never said", after="a run that is not there")
    stopped = await yard.hire("feat/two", "never said", after="a run that is not there")
    yard.stop(stopped)
    fine = await yard.hire("feat/three", "done")

    yard.command()

    assert (await yard.ended(fine)).outcome == "succeeded"
    await yard.over()
    assert "it could not be ended: there is no run 'a run that is not there' to go on from" in yard.logs(broken)
    assert "it could not be ended: there is no run 'a run that is not there' to go on from" in yard.logs(stopped)


async def test_a_worker_whose_cradle_is_killed_during_its_birth_is_born_in_another(yard: Yard) -> None:
    modules = yard.folder / "modules"
    modules.mkdir()
    (modules / "sitecustomize.py").write_text(DIES_AT_ITS_FIRST_BIRTH)
    run = await yard.hire("feat/one", write("one.txt"), "done")

    yard.command(PYTHONPATH=str(modules))

    assert (await yard.ended(run)).outcome == "succeeded"
    await yard.over()
    assert (modules / "died").exists()
    assert "the nursery has made no process for a worker: it is gone" in yard.logs(run)
    assert len(yard.events(run, RunResumed)) == 1
    yard.check(run)


GOES_ON_AS_ITS_PROCESS_ENDS = """
import os, sys

def end(code, end=os._exit):
    import anyio
    from pathlib import Path
    from podium.cli.workers.resume import mark_runs_resumed
    from podium.runs.run_handle import drive_run
from podium.setup.settings import Settings

    resumed = Path(__file__).with_name("resumed")
    if not resumed.exists():
        resumed.touch()
        somebody = os.fork()
        if somebody == 0:
            anyio.run(mark_runs_resumed, Settings.load().store, [Path(__file__).with_name("run").read_text()])
            end(0)
        os.waitpid(somebody, 0)
    end(code)

if "podium.processes.fork_server_main" in sys.orig_argv:
    os._exit = end
"""


async def test_a_paused_worker_that_goes_on_before_its_process_has_ended_has_not_crashed(yard: Yard) -> None:
    modules = yard.folder / "modules"
    modules.mkdir()
    (modules / "sitecustomize.py").write_text(GOES_ON_AS_ITS_PROCESS_ENDS)
    run = await yard.hire("feat/one", write("one.txt"), "another way", allow=())
    (modules / "run").write_text(run)
    yard.command(PYTHONPATH=str(modules))

    yard.answer(run, await yard.asked(run), "deny_and_pause")

    paused = await yard.wait(run, lambda entry: isinstance(entry.event, RunPaused))
    await yard.wait(run, lambda entry: isinstance(entry.event, RunEnded), after=paused.seq)
    await yard.over()
    assert (modules / "resumed").exists()
    assert "process exited" not in yard.logs(run)
    yard.check(run)


async def test_a_worker_that_says_nothing_any_more_is_ended_and_started_again(yard: Yard) -> None:
    run = await yard.hire("feat/one", {"says": "done", "silent": 1})
    async with App(yard.settings(), environ=yard.environ) as app, create_task_group() as group:
        commander = Commander(app.launcher, yard.environ, limits=LinkLimits(ping=0.3, silence=4.0))
        group.start_soon(commander.run_until_done)
        worker = await yard.worker(run)
        await yard.called(1)

        worker.kill(signal.SIGSTOP)

        assert (await yard.ended(run)).outcome == "succeeded"
    await yard.deserted()
    assert "it is gone: the other side was silent for 4 s" in yard.logs(run)
    yard.check(run)


IS_TOLD_OF_LATE = """
import os, sys
from pathlib import Path

def wait():
    if not told.exists():
        told.touch()
        told.with_name("tell").read_text()

if "podium.processes.fork_server_main" in sys.orig_argv:
    told = Path(__file__).with_name("told")
    os.register_at_fork(after_in_parent=wait)
"""


async def test_a_worker_that_came_before_its_birth_was_told_of_is_ended_when_it_says_nothing(yard: Yard) -> None:
    modules = yard.folder / "modules"
    modules.mkdir()
    (modules / "sitecustomize.py").write_text(IS_TOLD_OF_LATE)
    os.mkfifo(modules / "tell")
    run = await yard.hire("feat/one", {"says": "done", "silent": 1})
    async with App(yard.settings(), environ=yard.environ) as app, create_task_group() as group:
        environ = {**yard.environ, "PYTHONPATH": str(modules)}
        group.start_soon(Commander(app.launcher, environ, limits=LinkLimits(ping=0.3, silence=4.0)).run_until_done)
        worker = await yard.worker(run)
        await yard.called(1)
        (modules / "tell").write_text("now")

        worker.kill(signal.SIGSTOP)

        assert (await yard.ended(run)).outcome == "succeeded"
    await yard.deserted()
    assert "it is gone: the other side was silent for 4 s" in yard.logs(run)
    yard.check(run)


async def test_a_request_stays_open_when_the_commander_dies_and_is_answered_after(yard: Yard) -> None:
    run = await yard.hire("feat/one", write("one.txt"), "done", allow=())
    first = yard.command()
    asked = await yard.asked(run)

    first.kill()
    first.wait()
    await yard.deserted()
    yard.command()
    await yard.worker(run, start=2)
    yard.answer(run, asked, "once")

    assert (await yard.ended(run)).outcome == "succeeded"
    await yard.over()
    assert len(yard.events(run, PermissionAsked)) == 1
    yard.check(run)


# Between the commit and the end


async def broken_off(yard: Yard, run: str, branch: str, entries: int) -> None:
    """Work on a run in this process, which dies when it has written so many entries; then let a commander go on."""
    async with App(yard.settings(), environ=yard.environ, fault=refuse_after(entries)) as app:
        of = Worktrees(repository=Repository.at(yard.repo.path), ledger=Ledger(yard.store))
        checkout = await of.create(branch, run=run)
        driver = await app.launcher.take_over_run(run, is_attended=True)
        driver.record_checkout(checkout.base)
        async with drive_run(driver) as work:
            assert (await work.result()).outcome == "interrupted"
    bury(yard.store)
    yard.command()


async def test_work_is_committed_once_also_when_its_worker_dies_between_the_commit_and_the_end(yard: Yard) -> None:
    whole = await yard.hire("feat/whole", write("one.txt"), "done")
    yard.command()
    await yard.ended(whole)
    await yard.over()
    kinds = [type(event) for event in yard.events(whole)]
    written = len(kinds) - kinds.index(RunResumed)
    assert kinds[-2:] == [WorkCommitted, RunEnded]

    for number in (written - 2, written - 1):
        run = await yard.hire(f"feat/{number}", write("one.txt"), "done")
        await broken_off(yard, run, f"feat/{number}", number)

        assert (await yard.ended(run)).outcome == "succeeded"
        await yard.over()
        assert yard.commits(f"feat/{number}") == [f"work on feat/{number}"]
        assert {event.commit for event in yard.events(run, WorkCommitted)} == {yard.repo.tip(f"feat/{number}")}
        assert yard.repo.git("status", "--porcelain", at=yard.path(f"feat/{number}")) == ""
        yard.check(run)


# Kills at random

MOVES = (
    call("edit_file", path="a.txt", old_text="29\n", new_text="29\nthirty\n"),
    bash("truncate --size +1 counted.txt"),
    write("new.txt"),
    "all done",
)


async def killed_at_random(yard: Yard, chance: random.Random, number: int) -> None:
    """Two workers, and a kill of a worker, of the commander or of both somewhere on the way; then they go on."""
    branches = [f"feat/{number}-{name}" for name in "ab"]
    runs = await yard.hire_all(dict.fromkeys(branches, MOVES))
    commander = yard.command()
    victim = chance.choice(("worker", "commander", "both"))
    place = chance.randint(2, 28)
    await yard.wait(runs[0], lambda entry: entry.seq >= place or isinstance(entry.event, RunEnded))
    before = yard.finished_calls(*runs)

    if victim in ("worker", "both"):
        for one in yard.workers(*runs)[:1]:
            one.kill()
    if victim in ("commander", "both"):
        commander.kill()
        await gone(commander.pid)
        # Whoever comes next may come at once, while those before are still on their way out.
        yard.command()
    for run in runs:
        ended = await yard.ended(run)
        assert ended.outcome == "succeeded", (victim, place, ended, yard.logs(run))
    await yard.over()

    after = yard.finished_calls(*runs)
    assert {key: after[key] for key in before} == before, (victim, place)
    for run, branch in zip(runs, branches, strict=True):
        said = [event for event in yard.events(run, ToolAnswered) if "interrupted" in event.text]
        assert yard.file(branch, "a.txt").endswith("29\nthirty"), (victim, place)
        assert yard.file(branch, "new.txt") == "x"
        size = int(yard.repo.git("cat-file", "-s", f"{branch}:counted.txt"))
        assert size == 1 or (said and size <= 1), (victim, place, size)
        assert len(yard.commits(branch)) == 1, (victim, place)
        assert yard.repo.git("status", "--porcelain", at=yard.path(branch)) == ""
    yard.check(*runs)
    held = {f"-{process.pid}-" for process in yard.processes()} | {f"-{os.getpid()}-"}
    left = [path.name for path in ensure_socket_folder(yard.store).iterdir()]
    assert all(any(pid in name for pid in held) for name in left), (victim, left)


async def test_kills_at_random_points_are_survived(yard: Yard) -> None:
    yard.repo.commit({"counted.txt": ""})
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)

    for number in range(5):
        await killed_at_random(yard, chance, number)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_many_kills_at_random_points_are_survived(yard: Yard) -> None:
    yard.repo.commit({"counted.txt": ""})
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)

    for number in range(50):
        await killed_at_random(yard, chance, number)
