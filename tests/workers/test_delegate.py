"""What is accepted when work is delegated, and what is refused at once."""

from __future__ import annotations

import pytest
from anyio import CancelScope, create_task_group

from podium import App
from podium.store.sqlite.reader import StoreReader
from podium.store.sqlite.worker_index import WorkerIndex
from podium.values.errors import Mistake
from podium.values.event import RunStarted
from podium.values.worker_task import WorkerTask
from podium.workers.delegate import delegate_to_worker, enqueue_worker_run
from podium.workers.unfinished_workers import load_unfinished_workers

from .worker_lab import Yard, hand


async def test_of_several_that_delegate_on_one_branch_at_once_one_is_accepted(yard: Yard) -> None:
    accepted: list[str] = []
    refused: list[str] = []

    async def hire() -> None:
        async with App(yard.settings(), environ=yard.environ) as app:
            try:
                accepted.append(
                    await delegate_to_worker(app.launcher, hand("done"), "go", at=yard.repo.path, branch="feat/one")
                )
            except Mistake as error:
                refused.append(str(error))

    async with create_task_group() as group:
        for _ in range(4):
            group.start_soon(hire)

    assert [hired.run for hired in WorkerIndex(yard.store).list_all()] == accepted
    assert len(accepted) == 1
    assert refused == ["a worker is on 'feat/one' already; podium workers shows it, and another branch would do"] * 3


async def test_what_a_worker_that_waits_will_take_is_refused_to_others(yard: Yard) -> None:
    run = await yard.hire("feat/a-b", "done")

    with pytest.raises(Mistake) as folder:
        await yard.hire("feat-a/b", "done")
    with pytest.raises(Mistake) as below:
        await yard.hire("feat/a-b/c", "done")
    with pytest.raises(Mistake) as above:
        await yard.hire("feat", "done")

    path = yard.path("feat/a-b")
    assert str(folder.value) == f"{path} will be the worktree of 'feat/a-b'; another name than 'feat-a/b' would do"
    assert str(below.value).startswith("git cannot keep the branches 'feat/a-b/c' and 'feat/a-b' side by side")
    assert str(above.value).startswith("git cannot keep the branches 'feat' and 'feat/a-b' side by side")
    assert [hired.run for hired in WorkerIndex(yard.store).list_all()] == [run]


async def test_what_a_worker_would_have_taken_is_free_once_it_is_cancelled(yard: Yard) -> None:
    first = await yard.hire("feat/a-b", "done")
    async with App(yard.settings(), environ=yard.environ) as app:
        await app.stop(first)

    second = await yard.hire("feat-a/b", "done")

    assert [hired.run for hired in WorkerIndex(yard.store).list_all()] == [first, second]


async def test_who_is_hired_by_one_that_is_cut_short_is_left_to_a_commander_all_the_same(yard: Yard) -> None:
    async with App(yard.settings(), environ=yard.environ) as app:
        with CancelScope() as hiring:
            hiring.cancel()
            await enqueue_worker_run(app.launcher, hand("done"), "go", WorkerTask(root=yard.root, path=yard.root))

        outlook = load_unfinished_workers(yard.store, ours=())

        assert len(outlook.started) == 1
        assert not outlook.has_taken_runs


async def test_who_shares_a_checkout_is_hired_while_the_first_one_s_is_still_in_the_making(yard: Yard) -> None:
    branch, path = "team/members", yard.path("team/members")

    async with App(yard.settings(), environ=yard.environ) as app:
        one = await delegate_to_worker(
            app.launcher, hand("done"), "go", at=yard.repo.path, branch=branch, is_shared=True
        )
        yard.repo.git("worktree", "add", "-q", "-b", branch, str(path))  # and nobody has noted it yet
        other = await delegate_to_worker(
            app.launcher, hand("done"), "go", at=yard.repo.path, branch=branch, is_shared=True
        )

    assert [hired.run for hired in WorkerIndex(yard.store).list_all()] == [one, other]
    with StoreReader(yard.store) as reader:
        assert [errand_of(reader, run).path for run in (one, other)] == [str(path), str(path)]


def errand_of(reader: StoreReader, run: str) -> WorkerTask:
    began = reader.read_summary(run).first.event
    assert isinstance(began, RunStarted)
    assert began.errand is not None
    return began.errand
