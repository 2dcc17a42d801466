"""Edge cases for workers: large requests, the base of a branch, a checkout in use, work that cannot be committed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from podium.testing import format_script
from podium.values.event import PermissionAsked, RunEnded, WorkCommitted

from .worker_lab import WorkerLab, write


async def test_a_request_too_large_for_the_wire_still_waits_for_a_person(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", write("large.txt", "x" * 950_000), "done", allow=())
    lab.start_commander()

    asked = await lab.wait_asked(run)
    lab.answer(run, asked, "once")
    await lab.wait_ended(run)

    assert isinstance(asked, PermissionAsked)
    assert [event.outcome for event in lab.events(run) if isinstance(event, RunEnded)] == ["succeeded"]


async def test_a_branch_begins_at_what_was_checked_out_when_it_was_delegated(lab: WorkerLab) -> None:
    meant = lab.repo.tip()
    run = await lab.delegate("feat/one", write("one.txt"), "done")
    (Path(lab.root) / "later.txt").write_text("later\n")
    for words in (["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "later"]):
        subprocess.run(["git", "-C", lab.root, *words], check=True)
    lab.start_commander()

    await lab.wait_ended(run)

    assert lab.repo.git("merge-base", "feat/one", "main").strip() == meant


async def test_the_checkout_of_a_worker_at_work_is_not_removed(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", write("one.txt"), "done", allow=())
    lab.start_commander()
    asked = await lab.wait_asked(run)

    said = await lab.run_podium("worktrees", "--repo", lab.root, "remove", "feat/one", "--force")
    lab.answer(run, asked, "once")
    await lab.wait_ended(run)

    assert said.returncode == 2
    assert "a worker is still using feat/one" in said.stderr
    assert any(isinstance(event, WorkCommitted) for event in lab.events(run))


async def test_a_run_whose_work_cannot_be_committed_has_failed(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", write("one.txt"), "done", allow=())
    lab.start_commander()
    asked = await lab.wait_asked(run)
    subprocess.run(["git", "-C", lab.root, "update-ref", "-d", "refs/heads/feat/one"], check=True)
    lab.answer(run, asked, "once")

    await lab.wait_ended(run)

    [ended] = [event for event in lab.events(run) if isinstance(event, RunEnded)]
    assert ended.outcome == "failed"
    assert ended.failure is not None
    assert "its changes could not be committed and remain in" in ended.failure.message


async def test_a_run_in_the_background_works_in_the_repository_itself(lab: WorkerLab) -> None:
    request = f"Do it.\n{format_script('done in the background')}"

    said = await lab.run_podium("run", "answer", request, "--detach", "--repo", lab.root)
    ended = await lab.wait_ended(said.stdout.strip())
    shown = await lab.run_podium("show", said.stdout.strip())

    assert said.returncode == 0, said.stderr
    assert ended.outcome == "succeeded"
    assert "done in the background" in shown.stdout
