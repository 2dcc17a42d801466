"""Workers that crash, hang or die with their commander, and continue in another process."""

from __future__ import annotations

import os
import random
import signal

import pytest
from anyio import create_task_group

from podium import App
from podium.runs.run_handle import drive_run
from podium.runs.run_options import RunOptions
from podium.store.fault_injection import refuse_after
from podium.store.progress_files import Progress, record_progress
from podium.store.wakeup import ensure_socket_folder
from podium.store.worktree_ledger import Ledger
from podium.values.event import Noticed, PermissionAsked, RunEnded, RunPaused, RunResumed, ToolAnswered, WorkCommitted
from podium.values.worker_task import WorkerTask
from podium.workers.commander import Commander
from podium.workers.delegation import enqueue_worker_run
from podium.workers.wire.link import LinkLimits
from podium.workspace.git.repository import Repository
from podium.workspace.worktrees.worktree import Worktrees

from ..actors import ADA
from ..studio import expire_leases
from .worker_lab import WorkerLab, bash, call, make_scripted_agent, wait_exited, write


async def test_a_worker_that_crashes_is_started_again_and_goes_on(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", write("one.txt"), {"says": "done", "silent": 1})
    lab.start_commander()
    worker = await lab.wait_worker(run)
    await lab.wait_called(2)

    worker.kill()

    assert (await lab.wait_ended(run)).outcome == "succeeded"
    await lab.wait_finished()
    assert [one.pid == worker.pid for one in lab.events(run, RunResumed)] == [True, False]
    assert len(lab.server.calls) == 3
    assert "process exited with code -9 (attempt 1)" in lab.logs(run)
    lab.assert_clean_end(run)


async def test_a_worker_that_crashes_again_has_failed_and_reports_its_last_output(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", write("one.txt"), write("two.txt"), write("three.txt"), "done")

    lab.start_commander(PODIUM_FAULT="7")

    ended = await lab.wait_ended(run)
    await lab.wait_finished()
    assert ended.outcome == "failed"
    assert "process exited with code 137: " in str(ended.failure)
    assert "process exited with code 137 (attempt 2)" in str(ended.failure)
    assert len(lab.events(run, RunResumed)) == 3  # the last one by its commander, to terminate it
    lab.assert_clean_end(run)


async def test_a_worker_whose_run_has_lost_entries_is_paused_and_says_why_and_how_it_goes_on(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", write("one.txt"), "done")
    record_progress(lab.store, run, Progress(9, b"x" * 32))

    lab.start_commander()
    await lab.wait_for_event(run, RunPaused)
    await lab.wait_finished()
    [notice] = [one.text for one in lab.events(run, Noticed) if "lost entries" in one.text]
    refused = await lab.run_podium("resume", run)
    accepted = await lab.run_podium("resume", run, "--accept-loss")

    assert f"podium resume {run} --accept-loss" in notice
    assert (refused.returncode, accepted.returncode) == (8, 0)
    assert (await lab.wait_ended(run)).outcome == "succeeded"


DIES_AT_ITS_FIRST_FORK = """
import os, signal, sys
from pathlib import Path

if "podium.programs.fork_server" in sys.orig_argv:
    died = Path(__file__).with_name("died")
    if not died.exists():
        died.touch()
        os.register_at_fork(before=lambda: os.kill(os.getpid(), signal.SIGKILL))
"""


async def test_a_run_that_can_neither_continue_nor_be_ended_does_not_block_other_workers(lab: WorkerLab) -> None:
    async with App(lab.settings(), environ=lab.environ) as app:
        agent, settings = make_scripted_agent("never said"), app.runs.settings
        tasks = [WorkerTask(root=lab.root, path=lab.root, name=name) for name in ("one", "two")]
        options = RunOptions(after="a run that is not there")
        broken, stopped = [
            await enqueue_worker_run(app.runs, settings, agent, "go", task, options, by=ADA) for task in tasks
        ]
    lab.stop(stopped)
    fine = await lab.delegate("feat/three", "done")

    lab.start_commander()

    assert (await lab.wait_ended(fine)).outcome == "succeeded"
    await lab.wait_finished()
    assert "the run could not be ended: cannot continue from run 'a run that is not there': not found" in lab.logs(
        broken
    )
    assert "the run could not be ended: cannot continue from run 'a run that is not there': not found" in lab.logs(
        stopped
    )


async def test_a_worker_whose_fork_server_is_killed_while_forking_is_started_by_another(lab: WorkerLab) -> None:
    modules = lab.folder / "modules"
    modules.mkdir()
    (modules / "sitecustomize.py").write_text(DIES_AT_ITS_FIRST_FORK)
    run = await lab.delegate("feat/one", write("one.txt"), "done")

    lab.start_commander(PYTHONPATH=str(modules))

    assert (await lab.wait_ended(run)).outcome == "succeeded"
    await lab.wait_finished()
    assert (modules / "died").exists()
    assert "could not start a worker process: the fork server has exited" in lab.logs(run)
    assert len(lab.events(run, RunResumed)) == 1
    lab.assert_clean_end(run)


RESUMES_AS_ITS_PROCESS_EXITS = """
import os, sys

def end(code, end=os._exit):
    import anyio
    from functools import partial
    from pathlib import Path
    from podium.workers.worker_resumption import mark_runs_resumed
    from podium.files.settings import Settings
    from podium.values.actor import PODIUM

    resumed = Path(__file__).with_name("resumed")
    if not resumed.exists():
        resumed.touch()
        somebody = os.fork()
        if somebody == 0:
            run = Path(__file__).with_name("run").read_text()
            anyio.run(partial(mark_runs_resumed, Settings.load().store, [run], by=PODIUM))
            end(0)
        os.waitpid(somebody, 0)
    end(code)

if "podium.programs.fork_server" in sys.orig_argv:
    os._exit = end
"""


@pytest.mark.slow
async def test_a_paused_worker_that_goes_on_before_its_process_has_ended_has_not_crashed(lab: WorkerLab) -> None:
    modules = lab.folder / "modules"
    modules.mkdir()
    (modules / "sitecustomize.py").write_text(RESUMES_AS_ITS_PROCESS_EXITS)
    run = await lab.delegate("feat/one", write("one.txt"), "another way", allow=())
    (modules / "run").write_text(run)
    lab.start_commander(PYTHONPATH=str(modules))

    lab.answer(run, await lab.wait_asked(run), "deny_and_pause")

    paused = await lab.wait_for_entry(run, lambda entry: isinstance(entry.event, RunPaused))
    await lab.wait_for_entry(run, lambda entry: isinstance(entry.event, RunEnded), after=paused.seq)
    await lab.wait_finished()
    assert (modules / "resumed").exists()
    assert "process exited" not in lab.logs(run)
    lab.assert_clean_end(run)


async def test_a_worker_that_becomes_silent_is_killed_and_started_again(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", {"says": "done", "silent": 1})
    async with (
        App(lab.settings(), environ=lab.environ) as app,
        lab.notifier() as notifier,
        create_task_group() as group,
    ):
        commander = Commander(app.runs, lab.environ, notifier, limits=LinkLimits(ping=0.3, silence=4.0))
        group.start_soon(commander.run_until_done)
        worker = await lab.wait_worker(run)
        await lab.wait_called(1)

        worker.kill(signal.SIGSTOP)

        assert (await lab.wait_ended(run)).outcome == "succeeded"
    await lab.wait_no_processes()
    assert "connection lost: " in lab.logs(run)
    lab.assert_clean_end(run)


REPORTS_ITS_FORK_LATE = """
import os, sys
from pathlib import Path

def wait():
    if not told.exists():
        told.touch()
        told.with_name("tell").read_text()

if "podium.programs.fork_server" in sys.orig_argv:
    told = Path(__file__).with_name("told")
    os.register_at_fork(after_in_parent=wait)
"""


@pytest.mark.slow
async def test_a_worker_that_connects_before_its_start_is_reported_is_killed_when_it_becomes_silent(
    lab: WorkerLab,
) -> None:
    modules = lab.folder / "modules"
    modules.mkdir()
    (modules / "sitecustomize.py").write_text(REPORTS_ITS_FORK_LATE)
    os.mkfifo(modules / "tell")
    run = await lab.delegate("feat/one", {"says": "done", "silent": 1})
    async with (
        App(lab.settings(), environ=lab.environ) as app,
        lab.notifier() as notifier,
        create_task_group() as group,
    ):
        environ = {**lab.environ, "PYTHONPATH": str(modules)}
        commander = Commander(app.runs, environ, notifier, limits=LinkLimits(ping=0.3, silence=4.0))
        group.start_soon(commander.run_until_done)
        worker = await lab.wait_worker(run)
        await lab.wait_called(1)
        (modules / "tell").write_text("now")

        worker.kill(signal.SIGSTOP)

        assert (await lab.wait_ended(run)).outcome == "succeeded"
    await lab.wait_no_processes()
    assert "connection lost: " in lab.logs(run)
    lab.assert_clean_end(run)


@pytest.mark.slow
async def test_a_request_stays_open_when_the_commander_dies_and_is_answered_after(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", write("one.txt"), "done", allow=())
    first = lab.start_commander()
    asked = await lab.wait_asked(run)

    first.kill()
    first.wait()
    await lab.wait_no_processes()
    lab.start_commander()
    await lab.wait_worker(run, start=2)
    lab.answer(run, asked, "once")

    assert (await lab.wait_ended(run)).outcome == "succeeded"
    await lab.wait_finished()
    assert len(lab.events(run, PermissionAsked)) == 1
    lab.assert_clean_end(run)


# Between the commit and the end


async def interrupt_after_entries(lab: WorkerLab, run: str, branch: str, entries: int) -> None:
    """Drive a run in this process with a simulated crash after this many entries. A commander can then resume it."""
    async with App(lab.settings(), environ=lab.environ, fault=refuse_after(entries)) as app:
        worktrees = Worktrees(repository=Repository.at(lab.repo.path), ledger=Ledger(lab.store))
        checkout = await worktrees.create(branch, run=run)
        driver = await app.runs.claim(run, is_attended=True, by=ADA)
        assert driver.worker_task is not None
        driver.record_checkouts(driver.worker_task.with_bases([checkout.base]))
        async with drive_run(driver, by=ADA) as work:
            assert (await work.result()).outcome == "interrupted"
    expire_leases(lab.store)


async def test_work_is_committed_once_also_when_its_worker_dies_with_its_git_before_the_end(lab: WorkerLab) -> None:
    whole = await lab.delegate("feat/whole", write("one.txt"), "done")
    lab.start_commander()
    await lab.wait_ended(whole)
    await lab.wait_finished()
    kinds = [type(event) for event in lab.events(whole)]
    written = len(kinds) - kinds.index(RunResumed)
    assert kinds[-2:] == [WorkCommitted, RunEnded]

    runs = {}
    for number in (written - 2, written - 1):
        runs[number] = await lab.delegate(f"feat/{number}", write("one.txt"), "done")
        await interrupt_after_entries(lab, runs[number], f"feat/{number}", number)
        git_dir = lab.repo.path / ".git"
        own = git_dir / "worktrees" / lab.worktree_path(f"feat/{number}").name
        for lock in (own / "index.lock", own / "HEAD.lock", git_dir / f"refs/heads/feat/{number}.lock"):
            lock.touch()
    lab.start_commander()

    for run in runs.values():
        assert (await lab.wait_ended(run)).outcome == "succeeded"
    await lab.wait_finished()
    for number, run in runs.items():
        assert lab.commits(f"feat/{number}") == [f"work on feat/{number}"]
        assert {event.commit for event in lab.events(run, WorkCommitted)} == {lab.repo.tip(f"feat/{number}")}
        assert lab.repo.git("status", "--porcelain", at=lab.worktree_path(f"feat/{number}")) == ""
        lab.assert_clean_end(run)


async def test_a_failure_after_the_branch_has_moved_is_a_notice(lab: WorkerLab) -> None:
    lab.repo.git("config", "core.filesRefLockTimeout", "100")
    run = await lab.delegate("feat/cut", write("one.txt"), bash("sleep 0"), "done", allow=("Write",))
    lab.start_commander()
    asked = await lab.wait_asked(run)
    own = lab.repo.path / ".git" / "worktrees" / lab.worktree_path("feat/cut").name
    with (own / "index.lock").open("x"):
        lab.answer(run, asked, "once")
        ended = await lab.wait_ended(run)
    await lab.wait_finished()

    assert ended.outcome == "succeeded"
    assert lab.commits("feat/cut") == ["work on feat/cut"]
    assert any("the work is on its branch, but the index of" in event.text for event in lab.events(run, Noticed))


# Kills at random

MOVES = (
    call("edit_file", path="a.txt", old_text="29\n", new_text="29\nthirty\n"),
    bash("truncate --size +1 counted.txt"),
    write("new.txt"),
    "all done",
)


async def kill_at_random(lab: WorkerLab, chance: random.Random, number: int) -> None:
    """Run two workers, kill a worker, the commander or both at a random moment, and resume."""
    branches = [f"feat/{number}-{name}" for name in "ab"]
    runs = await lab.delegate_all(dict.fromkeys(branches, MOVES))
    commander = lab.start_commander()
    victim = chance.choice(("worker", "commander", "both"))
    place = chance.randint(2, 28)
    await lab.wait_for_entry(runs[0], lambda entry: entry.seq >= place or isinstance(entry.event, RunEnded))
    before = lab.finished_calls(*runs)

    if victim in ("worker", "both"):
        for one in lab.list_running_workers(*runs)[:1]:
            one.kill()
    if victim in ("commander", "both"):
        commander.kill()
        await wait_exited(commander.pid)
        # The next commander can start at once, while earlier processes are still exiting.
        lab.start_commander()
    for run in runs:
        ended = await lab.wait_ended(run)
        assert ended.outcome == "succeeded", (victim, place, ended, lab.logs(run))
    await lab.wait_finished()

    after = lab.finished_calls(*runs)
    assert {key: after[key] for key in before} == before, (victim, place)
    for run, branch in zip(runs, branches, strict=True):
        said = [event for event in lab.events(run, ToolAnswered) if "interrupted" in event.text]
        assert lab.read_file(branch, "a.txt").endswith("29\nthirty"), (victim, place)
        assert lab.read_file(branch, "new.txt") == "x"
        size = int(lab.repo.git("cat-file", "-s", f"{branch}:counted.txt"))
        assert size == 1 or (said and size <= 1), (victim, place, size)
        assert len(lab.commits(branch)) == 1, (victim, place)
        assert lab.repo.git("status", "--porcelain", at=lab.worktree_path(branch)) == ""
    lab.assert_clean_end(*runs)
    held = {f"-{process.pid}-" for process in lab.list_processes()} | {f"-{os.getpid()}-"}
    left = [path.name for path in ensure_socket_folder(lab.store).iterdir()]
    assert all(any(pid in name for pid in held) for name in left), (victim, left)


@pytest.mark.slow
async def test_kills_at_random_points_are_survived(lab: WorkerLab) -> None:
    lab.repo.commit({"counted.txt": ""})
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)

    for number in range(2):
        await kill_at_random(lab, chance, number)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_many_kills_at_random_points_are_survived(lab: WorkerLab) -> None:
    lab.repo.commit({"counted.txt": ""})
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)

    for number in range(50):
        await kill_at_random(lab, chance, number)
