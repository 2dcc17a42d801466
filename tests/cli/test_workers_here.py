"""Workers without their own checkout: read-only workers, and detached runs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from podium.core.placement import WorkerOptions

from ..workers.worker_lab import SILENT, WorkerLab, make_scripted_agent, write
from .worker_runs import invoke_podium, invoke_podium_json, open_lab


@pytest.fixture
async def lab(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WorkerLab]:
    async with open_lab() as lab:
        monkeypatch.chdir(lab.repo.path)
        yield lab


async def test_a_detached_run_is_shown_as_working_in_the_repository_itself(lab: WorkerLab) -> None:
    lab.write_agent(make_scripted_agent(write("new.txt"), "written"))
    lab.write_settings("permissions: {allow: [Write]}\n")

    run = (await invoke_podium(lab, "run", "hand", "go", "--detach")).stdout.strip()
    await invoke_podium(lab, "workers", "wait", run)

    assert (lab.repo.path / "new.txt").exists()
    assert (await invoke_podium(lab, "workers")).stdout.splitlines()[1].split()[:3] == [run, "(here)", "complete"]
    status = (await invoke_podium(lab, "workers", "status", run)).stdout
    assert f"works in: {lab.root}, the repository itself\n" in status
    assert "read-only" not in status
    assert (await invoke_podium_json(lab, "workers", "status", run))["reader"] is False
    assert "works in the repository itself" in (await invoke_podium(lab, "workers", "diff", run)).stderr


@pytest.mark.slow
async def test_a_reader_is_found_by_its_name(lab: WorkerLab) -> None:
    lab.write_agent(make_scripted_agent("it is in report.py"))
    run = (await invoke_podium(lab, "delegate", "survey", "where?", "--read-only", "--agent", "hand")).stdout.strip()

    waited = await invoke_podium(lab, "workers", "wait", "survey")
    after = await invoke_podium(
        lab, "delegate", "next", "and now?", "--read-only", "--agent", "hand", "--after", "survey"
    )

    assert waited.stdout == "survey: complete\n"
    assert (await invoke_podium(lab, "workers", "output", "survey")).stdout == "it is in report.py\n"
    assert (await invoke_podium(lab, "workers")).stdout.splitlines()[1].split()[:4] == [
        run,
        "survey",
        "(reader)",
        "complete",
    ]
    assert (await invoke_podium_json(lab, "workers", "status", "next"))["after"] == [run]
    assert (await lab.wait_ended(after.stdout.strip())).outcome == "succeeded"


async def test_all_of_a_readers_team_only_reads_whatever_mode_the_settings_name(lab: WorkerLab) -> None:
    lab.write_agent(make_scripted_agent(write("new.txt"), "tried"))
    (lab.home / "agents" / "lead.md").write_text(
        "---\ndescription: Leads.\nteam: {mode: broadcast, members: [hand]}\n---\n"
    )
    lab.write_settings("permissions: {mode: accept-edits}\n")

    await invoke_podium(lab, "delegate", "survey", "where?", "--read-only", "--agent", "lead")
    waited = await invoke_podium(lab, "workers", "wait", "survey")

    assert waited.stdout == "survey: complete\n"
    assert not (lab.repo.path / "new.txt").exists()


@pytest.mark.slow
async def test_a_reader_is_on_no_branch_of_its_name(lab: WorkerLab) -> None:
    reader = await lab.delegate("feat/a", SILENT, tools=None, options=WorkerOptions(is_reader=True))

    worker = await lab.delegate("feat/a", write("new.txt"), "written")
    await lab.delegate("feat/b", write("more.txt"), "written", options=WorkerOptions(after=("feat/a",)))
    lab.start_commander()
    await invoke_podium(lab, "workers", "wait", worker, "feat/b")
    merged = await invoke_podium(lab, "merge", "--all", "--yes")

    assert (await invoke_podium_json(lab, "workers", "status", reader))["branch"] == ""
    assert merged.exit_code == 0, merged.stderr
    assert merged.stdout.count("merged: ") == 2
    assert (lab.repo.path / "more.txt").exists()


async def test_a_branch_can_come_after_a_reader_and_begins_where_the_repository_is(lab: WorkerLab) -> None:
    await lab.delegate("survey", "found", tools=None, options=WorkerOptions(is_reader=True))
    run = await lab.delegate("feat/a", write("new.txt"), "written", options=WorkerOptions(after=("survey",)))

    waited = await invoke_podium(lab, "workers", "wait")

    assert waited.exit_code == 0, waited.stderr
    assert (await invoke_podium_json(lab, "workers", "status", run))["base"] == lab.repo.git(
        "rev-parse", "HEAD"
    ).strip()
