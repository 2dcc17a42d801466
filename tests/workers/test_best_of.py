"""Best of N: the same task in several worktrees, checked, judged, and the winner on the branch that was asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from podium import Agent, App, Settings
from podium.store.mailbox import post_to_mailbox
from podium.testing import format_script
from podium.values.event import (
    CandidateChosen,
    Checked,
    QuestionAnswered,
    QuestionAsked,
    WorkerSent,
    WorkRestored,
)

from ..cli.worker_runs import invoke_podium
from .worker_lab import WorkerLab, make_scripted_agent, write

pytestmark = pytest.mark.anyio

ALLOW = "permissions: {allow: [Write, Edit, Bash]}\n"


def make_member(name: str, content: str) -> Agent:
    prompt = format_script(write("result.txt", content), f"{name} is done")
    return Agent(name=name, prompt=prompt, tools=("Write",))


def score(number: float) -> str:
    return json.dumps({"score": number, "rationale": "as judged"})


async def run_team(lab: WorkerLab, **options: Any) -> tuple[Any, str]:
    """Run three members on the same task, with a judge, in the person's own checkout."""
    members = [make_member("good", "good\n"), make_member("bad", "bad\n"), make_member("best", "best\n")]
    judge = Agent(name="judge", prompt=format_script(score(0.9)))
    lead = Agent(
        name="lead",
        team={"mode": "broadcast", "members": ["good", "bad", "best"], "evaluator": "judge", **options},
    )
    settings = Settings.load(lab.environ, repo=lab.repo.path)
    async with App(settings, environ=lab.environ) as app:
        async with app.start(lead, "write it", repo=lab.root, agents=[*members, judge], is_attended=True) as run:
            if options.get("choose") == "person":
                async for entry in run.entries():
                    if isinstance(entry.event, QuestionAsked):
                        answer = QuestionAnswered(id=entry.event.id, text="best", by="me", digest=entry.event.digest)
                        post_to_mailbox(lab.store, run.id, answer, ref=entry.event.id)
                        break
            result = await run.result()
    return result, result.run_id


async def test_checks_come_first_and_the_first_that_passes_is_merged_on_a_new_branch(lab: WorkerLab) -> None:
    lab.write_settings(ALLOW)
    lab.start_commander()

    result, run = await run_team(lab, choose="checks", checks=["grep -q best result.txt"])

    assert result.succeeded, result.error
    [chosen] = lab.events(run, CandidateChosen)
    assert (chosen.winner, chosen.by) == ("best", "the checks")
    assert [(one.name, one.passed) for one in chosen.candidates] == [("good", False), ("bad", False), ("best", True)]
    assert len(lab.events(run, Checked)) == 3
    [restored] = lab.events(run, WorkRestored)
    assert restored.branch == f"podium/{run}/best"
    assert lab.repo.git("show", f"{restored.branch}:result.txt") == "best"
    assert not (lab.repo.path / "result.txt").exists()
    assert len({one.branch for one in lab.events(run, WorkerSent)}) == 3


@pytest.mark.slow
async def test_a_person_chooses_among_what_passes(lab: WorkerLab) -> None:
    lab.write_settings(ALLOW)
    lab.start_commander()

    result, run = await run_team(lab, choose="person")

    assert result.succeeded, result.error
    [asked] = lab.events(run, QuestionAsked)
    assert asked.choices == ("good", "bad", "best")
    [chosen] = lab.events(run, CandidateChosen)
    assert (chosen.winner, chosen.by) == ("best", "me")


@pytest.mark.slow
async def test_no_work_is_delivered_if_none_passes_the_checks(lab: WorkerLab) -> None:
    lab.write_settings(ALLOW)
    lab.start_commander()

    result, run = await run_team(lab, choose="judge", checks=["false"])

    assert result.outcome == "failed"
    assert "no member's work passes the checks" in (result.error or "")
    assert lab.events(run, WorkRestored) == []


async def test_delegate_times_leaves_the_judged_best_on_the_branch_also_after_a_kill(lab: WorkerLab) -> None:
    lab.write_settings(ALLOW)
    lab.write_agent(make_scripted_agent(write("result.txt", "made\n"), "done", tools=("Write",)))

    said = await invoke_podium(
        lab, "delegate", "feat/x", "do it", "--times", "2", "--agent", "hand", "--repo", lab.root, "--json"
    )
    assert said.exit_code == 0, said.stderr
    run = json.loads(said.stdout)["id"]
    await lab.wait_for_event(run, WorkerSent, count=2)
    (await lab.wait_worker(run)).kill()
    ended = await lab.wait_ended(run)

    assert ended.outcome == "succeeded", ended
    [chosen] = lab.events(run, CandidateChosen)
    assert chosen.winner in ("hand-1", "hand-2")
    assert all(one.score is not None for one in chosen.candidates)
    assert len(lab.events(run, WorkerSent)) == 2
    assert lab.repo.git("show", "feat/x:result.txt") == "made"
    assert lab.commits("feat/x")
    merged = await invoke_podium(lab, "merge", "--all", "--yes", "--json", "--repo", lab.root)
    assert merged.exit_code == 0, merged.stderr
    assert [one["branch"] for one in json.loads(merged.stdout)["coupled"]] == ["feat/x"]
    assert merged.stderr.count(f"skipped, because run {run} chose among several attempts") == 2
    assert (lab.repo.path / "result.txt").read_text() == "made\n"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--choose", "judge"), "--choose needs --times"),
        (("--times", "2", "--read-only"), "--times cannot be combined with --read-only"),
        (("--times", "1"), "is not in the range 2<=x<=10"),
        (
            ("--times", "2", "--choose", "checks"),
            "--choose checks requires at least one check, but the settings define none",
        ),
    ],
)
async def test_options_that_do_not_fit_are_refused(lab: WorkerLab, arguments: tuple[str, ...], why: str) -> None:
    said = await invoke_podium(lab, "delegate", "feat/x", "do it", *arguments, "--repo", lab.root)

    assert said.exit_code == 2
    assert why in said.stderr
