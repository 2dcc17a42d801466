"""Workers and requests that an earlier version left unfinished are continued."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podium.values.event import ModelReplied, PermissionAsked, QuestionAsked

from .unfinished_store import ASKS, SAMPLES, WAITS, restore_store
from .worker_lab import WorkerLab


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("unfinished-*.json")), ids=lambda path: path.stem)
async def test_the_workers_and_open_requests_of_an_earlier_version_are_continued(sample: Path, lab: WorkerLab) -> None:
    restore_store(lab, sample)
    lab.repo.git("worktree", "add", "-b", ASKS, str(lab.worktree_path(ASKS)))
    (lab.worktree_path(ASKS) / "one.txt").write_text("x\n")
    workers = {one["branch"]: one["id"] for one in await read_json(lab, "workers")}
    [parked] = {one["id"] for one in await read_json(lab, "ps")} - {*workers.values()}
    [permission] = lab.events(workers[ASKS], PermissionAsked)
    [question] = lab.events(parked, QuestionAsked)
    before = [entry.key for entry in lab.entries(workers[ASKS]) if isinstance(entry.event, ModelReplied)]

    approved = await lab.run_podium("approve", permission.id)
    answered = await lab.run_podium("answer", question.id, "green")
    lab.start_commander()
    outcomes = [(await lab.wait_ended(run)).outcome for run in workers.values()]
    resumed = await lab.run_podium("resume", parked)
    await lab.wait_finished()

    assert (approved.returncode, answered.returncode, resumed.returncode) == (0, 0, 0), resumed.stderr
    assert outcomes == ["succeeded", "succeeded"]
    assert [lab.read_file(ASKS, name) for name in ("one.txt", "two.txt")] == ["x", ""]
    assert lab.read_file(WAITS, "three.txt") == "x"
    assert [lab.server.count(f"{workers[ASKS]}/{key}") for key in before] == [0] * len(before)
    lab.assert_clean_end(*workers.values(), parked)


async def read_json(lab: WorkerLab, command: str) -> list[dict[str, Any]]:
    done = await lab.run_podium(command, "--json")
    answer = json.loads(done.stdout)
    return next(value for value in answer.values() if isinstance(value, list))
