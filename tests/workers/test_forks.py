"""Forks of runs with workers: those that had not returned are sent again, on branches of the fork."""

from __future__ import annotations

from typing import Any

import pytest

from podium import Agent, App
from podium.values.agent import Member, Team
from podium.values.event import Noticed, RunStarted, ToolAnswered, WorkerReturned, WorkerSent

from .worker_lab import EVERYTHING, WorkerLab, call, make_scripted_agent, write


async def fork_and_finish(app: App, run: str, at: int) -> tuple[str, Any]:
    fork = await app.fork(run, at=str(at))
    async with app.resume(fork) as live:
        return fork, await live.result()


async def test_the_tool_that_sent_unreturned_workers_sends_them_again(lab: WorkerLab) -> None:
    writer = make_scripted_agent(write("new.txt"), "written")
    boss = Agent(
        name="boss",
        tools=("delegate_task", "get_worker_result"),
        agents=("hand",),
        prompt=make_scripted_agent(
            call("delegate_task", branch="feat/a", task="Write it.", agent="hand"),
            call("delegate_task", branch="feat/b", task="Write more.", agent="hand", after=["feat/a"]),
            call("get_worker_result", branch="feat/b"),
            "All is done.",
        ).prompt,
    )
    async with App(lab.settings(EVERYTHING), environ=lab.environ) as app:
        source = (await app.run(boss, "Have it done.", repo=lab.repo.path, agents=[writer])).run_id
        at = [entry.seq for entry in lab.entries(source) if isinstance(entry.event, ToolAnswered)][1]

        fork, result = await fork_and_finish(app, source, at)

    suffix, before, after = fork[:4], lab.events(source, WorkerSent), lab.events(fork, WorkerSent)
    assert result.text == "All is done."
    assert [one.branch for one in after] == [f"feat/a-{suffix}", f"feat/b-{suffix}"]
    assert not {one.run for one in before} & {one.run for one in after}
    answers = [one.text for one in lab.events(fork, ToolAnswered)]
    assert answers[1] == f"Started a worker on feat/b-{suffix} (run {after[1].run})."
    assert answers[2].startswith("written")
    assert [lab.read_file(branch, "new.txt") for branch in ("feat/a", "feat/b", f"feat/b-{suffix}")] == ["x"] * 3
    [waiting] = lab.events(after[1].run, RunStarted)
    assert waiting.errand.after == (after[0].run,)
    assert [text for text in (one.text for one in lab.events(fork, Noticed)) if "had not reported" in text] == [
        f"the worker on {old.branch} (run {old.run}) had not reported a result by the fork point, so the fork "
        f"starts it again on {new.branch} (run {new.run})"
        for old, new in zip(before, after, strict=True)
    ]


@pytest.mark.slow
async def test_a_member_in_a_worker_is_sent_again_only_if_it_had_not_returned(lab: WorkerLab) -> None:
    member = make_scripted_agent(write("new.txt"), "written", isolation="process")
    lead = Agent(name="lead", team=Team(mode="sequential", members=(Member(agent="hand"), Member(agent="clerk"))))
    clerk = Agent(name="clerk", prompt=make_scripted_agent("filed").prompt)
    async with App(lab.settings(EVERYTHING), environ=lab.environ) as app:
        source = (await app.run(lead, "Make a file.", repo=lab.repo.path, agents=[member, clerk])).run_id
        sent, returned = (
            next(entry.seq for entry in lab.entries(source) if isinstance(entry.event, kind))
            for kind in (WorkerSent, WorkerReturned)
        )

        early, first = await fork_and_finish(app, source, sent)
        calls = lab.server.calls.copy()
        late, second = await fork_and_finish(app, source, returned)

    assert [result.parts[-1].text for result in (first, second)] == ["filed", "filed"]
    [again], [kept], [original] = (lab.events(run, WorkerSent) for run in (early, late, source))
    assert again.branch.startswith(f"podium/{early}/hand-")
    assert kept == original
    assert lab.read_file(again.branch, "new.txt") == lab.read_file(original.branch, "new.txt") == "x"
    assert len(lab.server.calls) == len(calls) + 1
