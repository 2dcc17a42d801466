"""Workers without a checkout: those that only read, and runs that were detached."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ..workers.worker_lab import SILENT, Yard, hand, write
from .worker_runs import opened, say, told


@pytest.fixture
async def yard(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Yard]:
    async with opened() as yard:
        monkeypatch.chdir(yard.repo.path)
        yield yard


async def test_a_detached_run_is_said_to_work_in_the_repository_itself(yard: Yard) -> None:
    yard.agent(hand(write("new.txt"), "written"))
    yard.set("permissions: {allow: [Write]}\n")

    run = (await say(yard, "run", "hand", "go", "--detach")).stdout.strip()
    await say(yard, "workers", "wait", run)

    assert (yard.repo.path / "new.txt").exists()
    assert (await say(yard, "workers")).stdout.splitlines()[1].split()[:3] == [run, "(here)", "complete"]
    status = (await say(yard, "workers", "status", run)).stdout
    assert f"works in: {yard.root}, the repository itself\n" in status
    assert "reads only" not in status
    assert (await told(yard, "workers", "status", run))["reader"] is False
    assert "works in the repository itself" in (await say(yard, "workers", "diff", run)).stderr


async def test_a_reader_is_found_by_its_name(yard: Yard) -> None:
    yard.agent(hand("it is in report.py"))
    run = (await say(yard, "delegate", "survey", "where?", "--read-only", "--agent", "hand")).stdout.strip()

    waited = await say(yard, "workers", "wait", "survey")
    after = await say(yard, "delegate", "next", "and now?", "--read-only", "--agent", "hand", "--after", "survey")

    assert waited.stdout == "survey: complete\n"
    assert (await say(yard, "workers", "output", "survey")).stdout == "it is in report.py\n"
    assert (await say(yard, "workers")).stdout.splitlines()[1].split()[:4] == [run, "survey", "(reader)", "complete"]
    assert (await told(yard, "workers", "status", "next"))["after"] == [run]
    assert (await yard.ended(after.stdout.strip())).outcome == "succeeded"


async def test_all_of_a_readers_team_only_reads_whatever_mode_the_settings_name(yard: Yard) -> None:
    yard.agent(hand(write("new.txt"), "tried"))
    (yard.home / "agents" / "lead.md").write_text(
        "---\ndescription: Leads.\nteam: {mode: broadcast, members: [hand]}\n---\n"
    )
    yard.set("permissions: {mode: accept-edits}\n")

    await say(yard, "delegate", "survey", "where?", "--read-only", "--agent", "lead")
    waited = await say(yard, "workers", "wait", "survey")

    assert waited.stdout == "survey: complete\n"
    assert not (yard.repo.path / "new.txt").exists()


async def test_a_reader_is_on_no_branch_of_its_name(yard: Yard) -> None:
    reader = await yard.hire("feat/a", SILENT, tools=None, is_reader=True)

    worker = await yard.hire("feat/a", write("new.txt"), "written")
    await yard.hire("feat/b", write("more.txt"), "written", follows=["feat/a"])
    yard.command()
    await say(yard, "workers", "wait", worker, "feat/b")
    merged = await say(yard, "merge", "--all", "--yes")

    assert (await told(yard, "workers", "status", reader))["branch"] == ""
    assert merged.exit_code == 0, merged.stderr
    assert merged.stdout.count("in: ") == 2
    assert (yard.repo.path / "more.txt").exists()


async def test_a_branch_can_come_after_a_reader_and_begins_where_the_repository_is(yard: Yard) -> None:
    await yard.hire("survey", "found", tools=None, is_reader=True)
    run = await yard.hire("feat/a", write("new.txt"), "written", follows=["survey"])

    waited = await say(yard, "workers", "wait")

    assert waited.exit_code == 0, waited.stderr
    assert (await told(yard, "workers", "status", run))["base"] == yard.repo.git("rev-parse", "HEAD").strip()
