"""A worker that is paused while it is starting stays paused."""

from __future__ import annotations

import pytest

from podium import App
from podium.programs.worker import resume_run
from podium.values.errors import RunIsPaused, find_first_error
from podium.values.event import ModelReplied, RunPaused, RunResumed
from podium.values.worker_task import WorkerTask
from podium.workers.worker_process import WorkerConfig

from ..actors import ADA
from .worker_lab import WorkerLab


async def test_a_worker_process_leaves_a_run_alone_that_was_paused_before_it_started(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", "never said")
    async with App(lab.settings(), environ=lab.environ) as app:
        await app.runs.pause(run, by=ADA)

    config = WorkerConfig(task=WorkerTask(root=lab.root, path=lab.root), environ=lab.environ)
    with pytest.raises(BaseException) as refused:
        async with resume_run(run, config, lambda id: None):
            pass

    assert isinstance(find_first_error(refused.value), RunIsPaused)
    assert isinstance(lab.events(run)[-1], RunPaused)


async def test_a_worker_that_is_paused_while_its_process_starts_stays_paused(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", {"says": "done", "silent": 1})
    lab.start_commander()
    async with App(lab.settings(), environ=lab.environ) as app:
        await app.runs.pause(run, by=ADA)

    await lab.wait_finished()

    assert isinstance(lab.events(run)[-1], RunPaused)
    assert not [event for event in lab.events(run) if isinstance(event, ModelReplied)]
    assert len([event for event in lab.events(run) if isinstance(event, RunResumed)]) <= 1
