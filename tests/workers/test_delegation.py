"""Which tasks are accepted when work is delegated, and which are refused at once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from anyio import CancelScope, create_task_group

from podium import App
from podium.store.reader import StoreReader
from podium.store.worker_index import WorkerIndex
from podium.values.errors import Mistake
from podium.values.event import RunStarted
from podium.values.worker_task import WorkerTask
from podium.workers.delegation import enqueue_worker_run
from podium.workers.unfinished_workers import load_unfinished_workers

from ..actors import ADA
from .worker_lab import WorkerLab, make_scripted_agent


async def test_of_several_concurrent_delegations_to_one_branch_one_is_accepted(lab: WorkerLab) -> None:
    accepted: list[str] = []
    refused: list[str] = []

    async def delegate() -> None:
        async with App(lab.settings(), environ=lab.environ) as app:
            try:
                accepted.append(await lab.create_worker(app, "feat/one", make_scripted_agent("done")))
            except Mistake as error:
                refused.append(str(error))

    async with create_task_group() as group:
        for _ in range(4):
            group.start_soon(delegate)

    assert [row.run for row in WorkerIndex(lab.store).list_all()] == accepted
    assert len(accepted) == 1
    assert refused == ["branch 'feat/one' already has a worker (see podium workers); use another branch"] * 3


async def test_the_branch_of_a_queued_worker_is_refused_to_others(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/a-b", "done")

    with pytest.raises(Mistake) as below:
        await lab.delegate("feat/a-b/c", "done")
    with pytest.raises(Mistake) as above:
        await lab.delegate("feat", "done")

    assert str(below.value).startswith("git cannot store both branches 'feat/a-b/c' and 'feat/a-b'")
    assert str(above.value).startswith("git cannot store both branches 'feat' and 'feat/a-b'")
    assert [row.run for row in WorkerIndex(lab.store).list_all()] == [run]


async def test_the_folder_of_a_queued_worker_is_not_given_to_another_branch(lab: WorkerLab) -> None:
    first = await lab.delegate("feat/a-b", "done")
    second = await lab.delegate("feat-a/b", "done")

    with StoreReader(lab.store) as reader:
        paths = [Path(read_worker_task(reader, run).path) for run in (first, second)]
    assert paths[0] == lab.worktree_path("feat/a-b")
    assert re.fullmatch(re.escape(paths[0].name) + "-[0-9a-f]{6}", paths[1].name)


async def test_the_folder_of_a_queued_worker_is_free_once_it_is_cancelled(lab: WorkerLab) -> None:
    first = await lab.delegate("feat/a-b", "done")
    async with App(lab.settings(), environ=lab.environ) as app:
        await app.stop(first)

    second = await lab.delegate("feat-a/b", "done")

    with StoreReader(lab.store) as reader:
        assert read_worker_task(reader, second).path == str(lab.worktree_path("feat/a-b"))


async def test_a_worker_is_left_to_a_commander_even_if_its_delegation_is_cancelled(lab: WorkerLab) -> None:
    async with App(lab.settings(), environ=lab.environ) as app:
        with CancelScope() as scope:
            scope.cancel()
            task = WorkerTask(root=lab.root, path=lab.root)
            agent, settings = make_scripted_agent("done"), app.runs.settings
            await enqueue_worker_run(app.runs, settings, agent, "go", task, {}, by=ADA)

        unfinished = load_unfinished_workers(lab.store, ours=())

        assert len(unfinished.started) == 1
        assert not unfinished.has_taken_runs


async def test_a_worker_can_be_delegated_to_a_shared_checkout_that_is_still_being_made(lab: WorkerLab) -> None:
    branch, path = "team/members", lab.worktree_path("team/members")

    async with App(lab.settings(), environ=lab.environ) as app:
        one = await lab.create_worker(app, branch, make_scripted_agent("done"), is_shared=True)
        lab.repo.git("worktree", "add", "-q", "-b", branch, str(path))  # and that is not recorded anywhere yet
        other = await lab.create_worker(app, branch, make_scripted_agent("done"), is_shared=True)

    assert [row.run for row in WorkerIndex(lab.store).list_all()] == [one, other]
    with StoreReader(lab.store) as reader:
        assert [read_worker_task(reader, run).path for run in (one, other)] == [str(path), str(path)]


def read_worker_task(reader: StoreReader, run: str) -> WorkerTask:
    began = reader.read_summary(run).first.event
    assert isinstance(began, RunStarted)
    assert began.errand is not None
    return began.errand
