"""Workers at the edges: large requests, a base that is meant now, a checkout in use, work that cannot come home."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from podium.values.event import PermissionAsked, RunEnded, WorkCommitted

from .worker_lab import Yard, write


async def test_a_request_too_large_for_the_wire_still_waits_for_a_person(yard: Yard) -> None:
    run = await yard.hire("feat/one", write("large.txt", "x" * 950_000), "done", allow=())
    yard.command()

    asked = await yard.asked(run)
    yard.answer(run, asked, "once")
    await yard.ended(run)

    assert isinstance(asked, PermissionAsked)
    assert [event.outcome for event in yard.events(run) if isinstance(event, RunEnded)] == ["succeeded"]


async def test_a_branch_begins_at_what_was_checked_out_when_it_was_delegated(yard: Yard) -> None:
    meant = yard.repo.tip()
    run = await yard.hire("feat/one", write("one.txt"), "done")
    (Path(yard.root) / "later.txt").write_text("later\n")
    for words in (["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "later"]):
        subprocess.run(["git", "-C", yard.root, *words], check=True)
    yard.command()

    await yard.ended(run)

    assert yard.repo.git("merge-base", "feat/one", "main").strip() == meant


async def test_the_checkout_of_a_worker_at_work_is_not_removed(yard: Yard) -> None:
    run = await yard.hire("feat/one", write("one.txt"), "done", allow=())
    yard.command()
    asked = await yard.asked(run)

    said = await yard.podium("worktrees", "--repo", yard.root, "remove", "feat/one", "--force")
    yard.answer(run, asked, "once")
    await yard.ended(run)

    assert said.returncode == 2
    assert "a worker is at work on feat/one" in said.stderr
    assert any(isinstance(event, WorkCommitted) for event in yard.events(run))


async def test_work_that_cannot_be_brought_home_is_no_success(yard: Yard) -> None:
    run = await yard.hire("feat/one", write("one.txt"), "done", allow=())
    yard.command()
    asked = await yard.asked(run)
    subprocess.run(["git", "-C", yard.root, "update-ref", "-d", "refs/heads/feat/one"], check=True)
    yard.answer(run, asked, "once")

    await yard.ended(run)

    [ended] = [event for event in yard.events(run) if isinstance(event, RunEnded)]
    assert ended.outcome == "failed"
    assert ended.failure is not None
    assert "stays uncommitted" in ended.failure.message


async def test_a_run_in_the_background_works_in_the_repository_itself(yard: Yard) -> None:
    request = f"Do it.\n```script\n{json.dumps(['done in the background'])}\n```"

    said = await yard.podium("run", "answer", request, "--detach", "--repo", yard.root)
    ended = await yard.ended(said.stdout.strip())
    shown = await yard.podium("show", said.stdout.strip())

    assert said.returncode == 0, said.stderr
    assert ended.outcome == "succeeded"
    assert "done in the background" in shown.stdout
