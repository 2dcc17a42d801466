"""Workers whose files are pushed after every step, and that continue on another machine."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from podium import App
from podium.core.journal_rows import find_chain_break
from podium.store.reader import StoreReader
from podium.values.errors import Mistake
from podium.values.event import (
    MessagesDelivered,
    Noticed,
    PermissionAsked,
    PushFailed,
    RunStarted,
    ToolAnswered,
    WorkCommitted,
    WorkerPlaced,
    WorkMoved,
    WorkPushed,
)
from podium.values.worker_task import RepositoryOrigin, WorkerTask
from podium.workers.delegation import enqueue_worker_run
from podium.workers.work_push import WorkPush
from podium.workers.worker_checkout import ensure_checkouts
from podium.workspace.travel.run_location import locate_task

from ..actors import ADA
from ..studio import expire_leases
from .travel_lab import TravelLab
from .worker_lab import bash, make_scripted_agent, open_worker_lab, write


@pytest.fixture
async def lab() -> AsyncIterator[TravelLab]:
    async with open_worker_lab(TravelLab) as lab:
        yield lab


@pytest.mark.slow
async def test_a_worker_that_lost_nothing_continues_on_another_machine_with_the_same_files(lab: TravelLab) -> None:
    (lab.repo.path / ".gitignore").write_text("*.log\n")
    base = lab.repo.commit({"here.txt": "only here\n"}, "not pushed")
    run = await lab.delegate_moving(
        "feat/one",
        write("one.txt", "first\n"),
        bash("cp one.txt build.log; rm old.txt"),
        structs.replace(bash("git log --oneline; git status --short"), silent=1),
        "done",
    )
    lab.start_commander()
    await lab.wait_called(3)
    last = await lab.wait_pushed(run, steps=2)
    laptop = lab.host
    await lab.lose_machine()

    lab.machine = "server"
    lab.start_commander()

    assert (await lab.wait_ended(run)).outcome == "succeeded"
    await lab.wait_finished()
    [placed], [moved] = lab.events(run, WorkerPlaced), lab.events(run, WorkMoved)
    assert (placed.host, placed.base) == (laptop, base)
    assert (moved.host, moved.commit, moved.unpushed, moved.ignored) == (lab.host, last.commit, (), ("build.log",))
    [told] = lab.events(run, MessagesDelivered)
    assert "continues on another machine" in told.text
    assert "because git ignores them or they are nested repositories: build.log" in told.text
    assert len(lab.server.calls) == 5  # of the finished calls, none was repeated
    seen = lab.events(run, ToolAnswered)[-1].text
    assert all(line in seen for line in (" not pushed", " D old.txt", "?? one.txt")), seen
    [committed] = lab.events(run, WorkCommitted)
    assert committed.files == ("old.txt", "one.txt")
    assert not list(lab.home.glob("repositories/*/runs/*")), "everything is pushed, so the clone is gone"
    with StoreReader(lab.store) as reader:
        assert find_chain_break(reader.read_rows(run)) is None


async def test_a_worker_continues_elsewhere_is_told_what_was_lost_and_its_branch_arrives_at_home(
    lab: TravelLab,
) -> None:
    moves = [write("one.txt"), bash("rm old.txt"), write("two.txt"), bash("cp one.txt three.txt")]
    run = await lab.delegate_moving("feat/one", *moves, "done", allow=("Write",))
    (lab.remote / "hooks").mkdir(exist_ok=True)
    hook = lab.remote / "hooks" / "update"
    hook.write_text('#!/bin/sh\nif git cat-file -e "$3:two.txt" 2>/dev/null; then echo disk full >&2; exit 1; fi\n')
    hook.chmod(0o755)
    lab.start_commander()
    first = await lab.wait_asked(run)
    await lab.wait_pushed(run, steps=1)
    lab.answer(run, first, "deny")
    asked = await lab.wait_asked(run, 2)
    failed = await lab.wait_for_event(run, PushFailed)
    await lab.lose_machine()
    lab.answer(run, asked, "once")
    hook.unlink()

    lab.machine = "server"
    lab.start_commander()

    assert (await lab.wait_ended(run)).outcome == "succeeded"
    await lab.wait_finished()
    assert "disk full" in failed.reason
    assert len(lab.events(run, PushFailed)) == 1
    [moved], [told] = lab.events(run, WorkMoved), lab.events(run, MessagesDelivered)
    assert moved.unpushed == ("write_file two.txt",)
    assert "- write_file two.txt" in told.text
    assert len(lab.events(run, PermissionAsked)) == 2
    [committed] = lab.events(run, WorkCommitted)
    assert committed.files == ("one.txt", "three.txt")

    lab.return_machine("laptop")
    shown = await lab.run_podium("workers", "diff", "feat/one", "--stat")
    assert "three.txt" in shown.stdout, shown.stderr
    merged = await lab.run_podium("merge", "feat/one", "--yes")
    assert merged.returncode == 0, merged.stderr
    assert "its worker has moved to another machine" in merged.stderr
    assert (lab.repo.path / "three.txt").read_text() == "x\n"
    assert lab.list_remote_refs() == []
    assert lab.repo.git("for-each-ref", "refs/podium/runs") == ""


async def test_a_queued_worker_starts_on_a_machine_that_never_had_the_repository(lab: TravelLab) -> None:
    base = lab.repo.commit({"here.txt": "only here\n"}, "not pushed")
    run = await lab.delegate_moving("feat/one", "done")
    lab.machine = "server"
    async with App(lab.settings(), environ=lab.environ) as app:
        started = (await app.runs.read_entries(run))[0].event
        assert isinstance(started, RunStarted)
        assert started.errand is not None
        task = locate_task(started.errand, run, lab.home)

        [checkout] = await ensure_checkouts(app.runs, lab.environ, run, task)
        [again] = await ensure_checkouts(app.runs, lab.environ, run, task)

    assert checkout == again
    assert checkout.base == base
    assert (checkout.path / "here.txt").read_text() == "only here\n"
    assert checkout.path.is_relative_to(lab.home)


async def test_commands_on_another_machine_see_the_slot_of_their_checkout(lab: TravelLab) -> None:
    run = await lab.delegate_moving("feat/one", bash("printenv PODIUM_SLOT"), "done")
    lab.machine = "server"
    lab.start_commander()

    assert (await lab.wait_ended(run)).outcome == "succeeded"
    [answered] = lab.events(run, ToolAnswered)
    assert answered.text.splitlines()[0] == "1"


async def test_a_repository_without_a_remote_is_refused_on_another_machine(lab: TravelLab) -> None:
    lab.repo.git("remote", "remove", "origin")
    run = await lab.delegate_moving("feat/one", "done")
    laptop = lab.host
    lab.machine = "server"
    async with App(lab.settings(), environ=lab.environ) as app:
        started = (await app.runs.read_entries(run))[0].event
        assert isinstance(started, RunStarted)
        assert started.errand is not None
        with pytest.raises(Mistake, match=f"has no remote, so only {laptop} can work on this run; add a remote with"):
            await ensure_checkouts(app.runs, lab.environ, run, locate_task(started.errand, run, lab.home))


@pytest.mark.slow
async def test_a_repository_without_a_remote_is_pinned_to_its_machine_and_says_so(lab: TravelLab) -> None:
    lab.repo.git("remote", "remove", "origin")
    run = await lab.delegate_moving("feat/one", "done")
    lab.start_commander()

    assert (await lab.wait_ended(run)).outcome == "succeeded"
    assert any("has no remote" in notice.text for notice in lab.events(run, Noticed))
    assert lab.events(run, WorkPushed, PushFailed) == []


@pytest.mark.slow
async def test_a_worker_builds_on_the_work_of_another_that_moved(
    lab: TravelLab,
) -> None:
    first = await lab.delegate_moving("feat/one", write("one.txt"), {"says": "done", "silent": 1})
    second = await lab.delegate_moving("feat/two", bash("cp one.txt two.txt"), "done", after=("feat/one",))
    lab.start_commander()
    await lab.wait_pushed(first, steps=1)
    await lab.lose_machine()
    lab.machine = "server"
    lab.start_commander()
    await lab.wait_ended(first)
    await lab.wait_ended(second)
    await lab.wait_finished()

    [placed] = lab.events(second, WorkerPlaced)
    [committed] = lab.events(second, WorkCommitted)
    assert committed.files == ("two.txt",)
    assert placed.host == lab.host
    lab.return_machine("laptop")
    merged = await lab.run_podium("merge", "--all", "--yes")
    assert merged.returncode == 0, merged.stderr
    assert (lab.repo.path / "two.txt").read_text() == "x\n"


async def test_a_base_that_cannot_be_pushed_is_refused_when_the_task_is_delegated(lab: TravelLab) -> None:
    lab.repo.commit({"here.txt": "only here\n"}, "not pushed")
    lab.remote.rename(lab.folder / "elsewhere.git")

    with pytest.raises(Mistake, match=r"is not on any branch of origin and could not be pushed: .*delegate again"):
        await lab.delegate_moving("feat/one", "done")


async def test_a_process_that_has_lost_its_run_changes_nothing_that_its_successor_pushed(lab: TravelLab) -> None:
    run = await lab.delegate_moving("feat/one", "done")
    async with App(lab.settings(), environ=lab.environ) as zombie, App(lab.settings(), environ=lab.environ) as owner:
        started = (await owner.runs.read_entries(run))[0].event
        assert isinstance(started, RunStarted)
        assert started.errand is not None
        [checkout] = await ensure_checkouts(owner.runs, lab.environ, run, started.errand)
        old = await zombie.runs.claim(run, by=ADA)
        expire_leases(lab.store)
        new = await owner.runs.claim(run, by=ADA)
        pushes = [
            WorkPush(one.timeline, lab.settings(), zombie._background_tasks, started.errand) for one in (old, new)
        ]
        (checkout.path / "one.txt").write_text("new\n")
        await pushes[1].push()
        before = lab.list_remote_refs()
        (checkout.path / "one.txt").write_text("old\n")

        await pushes[0].push()

        assert [one.rpartition("/")[2] for one in before] == ["3"]
        assert lab.show_remote(f"{before[0]}:one.txt") == "new"
        assert len(lab.events(run, WorkPushed)) == 1


async def test_a_recorded_remote_that_could_run_a_command_ends_only_its_own_run(lab: TravelLab) -> None:
    mark = lab.folder / "mark"
    origin = RepositoryOrigin(path=lab.root, host="elsewhere", remote=f"ext::touch {mark}", base=lab.repo.tip())
    task = WorkerTask(root=lab.root, path=f"{lab.root}-w", branch="feat/one", base=lab.repo.tip(), origin=origin)
    async with App(lab.settings(), environ=lab.environ) as app:
        agent, settings = make_scripted_agent("done"), app.runs.settings
        run = await enqueue_worker_run(app.runs, settings, agent, "go", task, {"repo": lab.repo.path}, by=ADA)

    lab.start_commander()

    ended = await lab.wait_ended(run)
    assert ended.outcome == "failed"
    assert "a remote that starts with ext:: can run any command" in str(ended.failure)
    await lab.wait_finished()
    assert not mark.exists()
