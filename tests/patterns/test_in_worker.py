"""Members that run as workers in their own process and checkout, and agents that delegate to workers themselves."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio import move_on_after
from msgspec import structs

from podium import Agent, App, Settings
from podium.store.fault_injection import refuse_after
from podium.store.follower import Follower
from podium.store.mailbox import post_to_mailbox
from podium.store.reader import StoreReader
from podium.store.worker_index import WorkerIndex
from podium.testing import ModelServer, Move, calls, format_script, make_repository
from podium.testing import run_git as git
from podium.values.agent import Budget, Member, Permissions, Team
from podium.values.errors import Mistake
from podium.values.event import (
    OperationEnded,
    PermissionAnswered,
    PermissionAsked,
    RunEnded,
    RunResumed,
    RunStarted,
    ToolAnswered,
    TurnStarted,
    WorkCommitted,
    WorkerReturned,
    WorkerSent,
)
from podium.workers.local_placement import MAX_DEPTH

from ..studio import expire_leases


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "r", {"kept.txt": "kept\n"}, message="x")


@pytest.fixture
def settings(tmp_path: Path, server: ModelServer) -> Iterator[Settings]:
    home = tmp_path / "h"
    loaded = Settings.load(
        {}, home=home, model="openai:m", base_url=server.url, permissions=Permissions(allow=("Write",))
    )
    yield loaded
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and f"PODIUM_HOME={home}\0".encode() in _read_environ(process):
            os.kill(int(process.name), signal.SIGKILL)


def _read_environ(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes() + b"\0"
    except OSError:
        return b""


script_block = format_script


def write_move(name: str) -> Move:
    return calls("write_file", path=name, content=f"{name}\n")


async def test_a_member_with_a_process_of_its_own_answers_and_leaves_its_work_on_a_branch(
    repo: Path, settings: Settings
) -> None:
    process_member = Agent(
        name="away", prompt=script_block(write_move("new.txt"), "I made it."), tools=("Write",), isolation="process"
    )
    here = Agent(name="here", prompt=script_block("I only watched."))
    lead = Agent(name="lead", team=Team(mode="broadcast", members=(Member(agent="away"), Member(agent="here"))))

    async with App(settings, environ={}) as app:
        result = await app.run(lead, "Make a file.", repo=repo, agents=[process_member, here])
        entries = await app.runs.read_entries(result.run_id)

    assert [part.outcome for part in result.parts] == ["succeeded", "succeeded"]
    assert result.parts[0].text.startswith("I made it.")
    [sent] = [entry.event for entry in entries if isinstance(entry.event, WorkerSent)]
    [returned] = [entry.event for entry in entries if isinstance(entry.event, WorkerReturned)]
    assert returned.usage.calls == 2
    assert result.usage.calls == 3
    assert git(repo, "show", f"{sent.branch}:new.txt") == "new.txt\n"
    assert not (repo / "new.txt").exists()
    with StoreReader(settings.store) as reader:
        events = [entry.event for entry in reader.read_entries(sent.run)]
    [left] = [event for event in events if isinstance(event, WorkCommitted)]
    assert left.files == ("new.txt",)
    authors = [(event.by, event.channel) for event in events if isinstance(event, RunStarted | RunResumed)]
    assert authors == [("lead", "agent"), ("Podium", "")]


async def test_stopping_a_run_ends_the_workers_that_it_sent(repo: Path, settings: Settings) -> None:
    process_member = Agent(name="away", prompt=script_block({"says": "never", "silent": True}), isolation="process")
    lead = Agent(name="lead", team=Team(mode="broadcast", members=(Member(agent="away"),)))

    async with App(settings, environ={}) as app, app.start(lead, "Wait.", repo=repo, agents=[process_member]) as run:
        async for entry in run.entries():
            if isinstance(entry.event, WorkerSent):
                sent = entry.event.run
                break
        with Follower(settings.store, sent) as worker:
            async for entry in worker:
                if isinstance(entry.event, TurnStarted):
                    break
        await run.stop()
        result = await run.result()

    assert result.outcome == "cancelled"
    with Follower(settings.store, sent) as worker:
        events = [entry.event async for entry in worker]
    assert isinstance(events[-1], RunEnded)
    assert events[-1].outcome == "cancelled"


async def test_a_run_that_waits_for_a_worker_gets_another_commander_when_the_first_dies(
    repo: Path, settings: Settings, server: ModelServer
) -> None:
    process_member = Agent(name="away", prompt=script_block({"says": "I am back.", "silent": 1}), isolation="process")
    lead = Agent(name="lead", team=Team(mode="broadcast", members=(Member(agent="away"),)))

    async with App(settings, environ={}) as app, app.start(lead, "Wait.", repo=repo, agents=[process_member]) as run:
        await server.wait_calls(1)
        for pid in find_commanders(settings):
            os.kill(pid, signal.SIGKILL)
        result = await run.result()

    assert [part.outcome for part in result.parts] == ["succeeded"], result.parts
    assert result.parts[0].text.startswith("I am back.")


def find_commanders(settings: Settings) -> list[int]:
    ours = [one for one in Path("/proc").glob("[0-9]*") if f"={settings.home}\0".encode() in _read_environ(one)]
    return [int(one.name) for one in ours if b"podium.programs.commander" in (one / "cmdline").read_bytes()]


async def test_an_agent_sends_a_worker_waits_for_it_and_uses_its_result(repo: Path, settings: Settings) -> None:
    task = script_block(write_move("by-worker.txt"), "The worker is done.")
    boss = Agent(
        name="boss",
        tools=("delegate_task", "check_workers", "get_worker_result", "cancel_worker"),
        prompt=script_block(
            {"calls": [{"name": "delegate_task", "arguments": {"branch": "feat/x", "task": task}}]},
            {"calls": [{"name": "get_worker_result", "arguments": {"branch": "feat/x"}}]},
            {"calls": [{"name": "check_workers", "arguments": {}}]},
            {"calls": [{"name": "cancel_worker", "arguments": {"branch": "nobody"}}]},
            {"calls": [{"name": "cancel_worker", "arguments": {"branch": "feat/x"}}]},
            "All is done.",
        ),
    )

    async with App(settings, environ={}) as app:
        result = await app.run(boss, "Have it done.", repo=repo)
        entries = await app.runs.read_entries(result.run_id)

    assert result.text == "All is done."
    answers = [entry.event.text for entry in entries if isinstance(entry.event, ToolAnswered)]
    assert answers[0].startswith("Started a worker on feat/x")
    assert answers[1].startswith("The worker is done.")
    assert answers[2] == "feat/x: succeeded"
    assert answers[3].startswith("You have no worker on 'nobody'")
    assert answers[4] == "The worker on feat/x has already ended (succeeded)."
    assert git(repo, "show", "feat/x:by-worker.txt") == "by-worker.txt\n"
    assert all(entry.event.outcome == "succeeded" for entry in entries if isinstance(entry.event, OperationEnded))


async def test_a_run_that_dies_while_its_worker_is_running_finds_it_again(repo: Path, settings: Settings) -> None:
    process_member = Agent(
        name="away", prompt=script_block(write_move("new.txt"), "I made it."), tools=("Write",), isolation="process"
    )
    lead = Agent(name="lead", team=Team(mode="broadcast", members=(Member(agent="away"),)))
    sent_at = 4  # the starts of the run, the lead and the member, and the delegation

    async with App(settings, environ={}, fault=refuse_after(sent_at)) as app:
        died = await app.run(lead, "Make a file.", repo=repo, agents=[process_member])
    assert died.outcome == "interrupted"
    expire_leases(settings.store)
    async with App(settings, environ={}) as app, app.resume(died.run_id) as resumed:
        result = await resumed.result()
        entries = await app.runs.read_entries(died.run_id)

    assert result.succeeded, result.error
    sent = [entry.event for entry in entries if isinstance(entry.event, WorkerSent)]
    assert [entry.seq for entry in entries if isinstance(entry.event, WorkerSent)] == [sent_at]
    assert git(repo, "rev-list", "--count", f"HEAD..{sent[0].branch}") == "1\n"


# Where the members of a team work


def make_builder(name: str) -> Agent:
    return Agent(name=name, prompt=script_block(write_move(f"{name}.txt"), f"{name} is done."), tools=("Write",))


def make_team(worktrees: str, *names: str) -> tuple[Agent, list[Agent]]:
    team = Team(mode="broadcast", members=tuple(Member(agent=name) for name in names), options={"worktrees": worktrees})
    return Agent(name="crew", team=team), [make_builder(name) for name in names]


def read_runs(settings: Settings) -> dict[str, RunStarted]:
    with StoreReader(settings.store) as reader:
        first_events = {summary.id: summary.first.event for summary in reader.list_runs()}
    return {run: event for run, event in first_events.items() if isinstance(event, RunStarted)}


async def test_a_team_with_one_checkout_works_in_it_as_a_whole(repo: Path, settings: Settings) -> None:
    lead, members = make_team("team", "one", "two")

    async with App(settings, environ={}) as app:
        result = await app.run(lead, "Make files.", repo=repo, agents=members)
        entries = await app.runs.read_entries(result.run_id)

    assert result.succeeded, result.error
    assert "one is done." in result.text
    assert "two is done." in result.text
    [sent] = [entry.event for entry in entries if isinstance(entry.event, WorkerSent)]
    assert set(git(repo, "diff", "--name-only", f"HEAD..{sent.branch}").split()) == {"one.txt", "two.txt"}
    assert sorted(read_runs(settings)) == sorted([result.run_id, sent.run])
    assert git(repo, "status", "--porcelain") == ""


@pytest.mark.slow
async def test_members_share_a_checkout_beside_that_of_their_lead(repo: Path, settings: Settings) -> None:
    lead, members = make_team("lead", "one", "two", "three")

    async with App(settings, environ={}) as app:
        result = await app.run(lead, "Make files.", repo=repo, agents=members)

    assert result.succeeded, result.error
    worker_tasks = [began.errand for began in read_runs(settings).values() if began.errand is not None]
    shared = [worker_task for worker_task in worker_tasks if worker_task.is_shared]
    [own] = [worker_task for worker_task in worker_tasks if not worker_task.is_shared]
    assert len(shared) == 3
    assert len({(worker_task.branch, worker_task.path) for worker_task in shared}) == 1
    names = {"one.txt", "two.txt", "three.txt"}
    assert set(git(repo, "diff", "--name-only", f"HEAD..{shared[0].branch}").split()) == names
    assert git(repo, "diff", "--name-only", f"HEAD..{own.branch}") == ""
    assert git(Path(shared[0].path), "status", "--porcelain") == ""


@pytest.mark.slow
async def test_each_member_has_a_checkout_of_its_own_unless_its_file_says_otherwise(
    repo: Path, settings: Settings
) -> None:
    lead, members = make_team("each", "one", "two")

    async with App(settings, environ={}) as app:
        result = await app.run(lead, "Make files.", repo=repo, agents=members)

    assert result.succeeded, result.error
    worker_tasks = [began.errand for began in read_runs(settings).values() if began.errand is not None]
    files = {git(repo, "diff", "--name-only", f"HEAD..{worker_task.branch}") for worker_task in worker_tasks}
    assert files == {"one.txt\n", "two.txt\n"}


@pytest.mark.parametrize("worktrees", ["team", "lead", "each"])
async def test_checkouts_for_a_team_need_a_repository(worktrees: str, tmp_path: Path, settings: Settings) -> None:
    lead, members = make_team(worktrees, "one")

    async with App(settings, environ={}) as app:
        with pytest.raises(Mistake, match=f"crew has the option worktrees: {worktrees}, .* create one with git init"):
            await app.run(lead, "Make files.", repo=tmp_path, agents=members)


# What they can use


async def test_a_worker_is_held_to_its_part_of_the_runs_budget(repo: Path, settings: Settings) -> None:
    process_member = Agent(
        name="away", prompt=script_block(write_move("new.txt"), write_move("newer.txt"), "done"), tools=("Write",)
    )
    process_member = structs.replace(process_member, isolation="process")
    lead = Agent(name="lead", team=Team(mode="broadcast", members=(Member(agent="away"),)))

    async with App(settings, environ={}) as app:
        result = await app.run(lead, "Make files.", repo=repo, agents=[process_member], budget=Budget(turns=8))
        entries = await app.runs.read_entries(result.run_id)

    [sent] = [entry.event for entry in entries if isinstance(entry.event, WorkerSent)]
    assert sent.budget == Budget(turns=2)
    assert result.parts[0].outcome == "failed"
    assert "budget of 2 model calls is not enough" in str(result.parts[0].failure)
    assert result.usage.calls == 2


async def test_budget_reserved_for_workers_is_not_lent_or_spent_twice(repo: Path, settings: Settings) -> None:
    task = script_block({"says": "never", "silent": True})
    boss = Agent(
        name="boss",
        tools=("delegate_task", "cancel_worker"),
        prompt=script_block(
            {"calls": [{"name": "delegate_task", "arguments": {"branch": "feat/x", "task": task}}]},
            {"calls": [{"name": "delegate_task", "arguments": {"branch": "feat/y", "task": task}}]},
            "They are on their way.",
        ),
    )

    async with App(settings, environ={}) as app:
        result = await app.run(boss, "Have it done.", repo=repo, budget=Budget(turns=10))
        entries = await app.runs.read_entries(result.run_id)

    sent = [entry.event.budget for entry in entries if isinstance(entry.event, WorkerSent)]
    assert sent == [Budget(turns=2), Budget(turns=1)]  # a quarter of nine, and of six


@pytest.mark.slow
async def test_a_worker_whose_result_is_never_read_counts_once_and_its_reserved_budget_is_released(
    repo: Path, settings: Settings
) -> None:
    def send(branch: str) -> Move:
        return calls("delegate_task", branch=branch, task=script_block("done"))

    async def wait() -> str:
        """Wait until all workers have finished."""
        for row in WorkerIndex(settings.store).list_all():
            with Follower(settings.store, row.run) as worker:
                async for entry in worker:
                    if isinstance(entry.event, RunEnded):
                        break
        return "They are through."

    waits = {"calls": [{"name": "wait", "arguments": {}}]}
    moves = (send("a"), waits, send("b"), waits, "Well.")
    boss = Agent(name="boss", tools=("delegate_task", "wait"), prompt=script_block(*moves))

    async with App(settings, environ={}) as app:
        result = await app.run(boss, "Have it done.", repo=repo, tools=[wait], budget=Budget(turns=20))
        entries = await app.runs.read_entries(result.run_id)

    assert result.succeeded, result.error
    sent = [entry.event for entry in entries if isinstance(entry.event, WorkerSent)]
    assert [one.budget for one in sent] == [Budget(turns=4), Budget(turns=4)]  # a quarter of 19, and of 20 - 3 - 1
    returned = [entry.event for entry in entries if isinstance(entry.event, WorkerReturned)]
    assert [(one.run, one.usage.calls) for one in returned] == [(one.run, 1) for one in sent]
    assert result.usage.calls == 5 + 2


async def test_an_agent_sets_the_order_the_models_and_the_limits_of_its_workers(repo: Path, settings: Settings) -> None:
    def send(branch: str, **more: Any) -> Move:
        return calls("delegate_task", branch=branch, task="Do it.", **more)

    writer = Agent(name="writer", prompt=script_block(write_move("new.txt"), "written"), tools=("Write",))
    small = Agent(name="small", prompt=script_block("read"), tools=("Write",), budget=Budget(turns=2, seconds=500))
    boss = Agent(
        name="boss",
        tools=("delegate_task", "get_worker_result"),
        agents=("writer", "small"),
        prompt=script_block(
            send("a", agent="writer"),
            send("b", agent="writer", budget={"turns": 12}),
            send(
                "c", agent="small", after=["a", "b"], read_only=True, budget={"turns": 9}, timeout=60, model="openai:n"
            ),
            send("d", agent="stranger"),
            send("e", after=["a", "z"]),
            send("f", budget={"turns": -1}),
            {"calls": [{"name": "get_worker_result", "arguments": {"branch": "c"}}]},
            "All is done.",
        ),
    )

    async with App(settings, environ={}) as app:
        result = await app.run(boss, "Have it done.", repo=repo, agents=[writer, small], budget=Budget(turns=40))
        entries = await app.runs.read_entries(result.run_id)
        sent = [entry.event for entry in entries if isinstance(entry.event, WorkerSent)]
        started = [(await app.runs.read_entries(one.run))[0].event for one in sent]

    answers = [entry.event.text for entry in entries if isinstance(entry.event, ToolAnswered)]
    assert answers[3] == "Agent 'stranger' not found; available: boss, writer, small."
    assert answers[4].startswith("You have no worker on 'z'")
    assert answers[5].startswith("Invalid arguments for delegate_task: Expected `int` >= 1")
    assert answers[6].startswith("read")
    assert [one.branch for one in sent] == ["a", "b", "c"]
    assert [one.budget for one in sent] == [Budget(turns=9), Budget(turns=12), Budget(turns=2)]
    last = started[2]
    assert isinstance(last, RunStarted)
    assert last.errand is not None
    assert (last.errand.is_reader, last.errand.after) == (True, (sent[0].run, sent[1].run))
    assert (last.agents[0].model, last.agents[0].tools) == ("openai:n", None)
    assert last.agents[0].budget == Budget(turns=2, seconds=60)
    assert last.settings["permission_mode"] == "plan"


@pytest.mark.slow
async def test_workers_send_workers_only_to_the_maximum_depth(repo: Path, settings: Settings) -> None:
    def sender(depth: int) -> str:
        task = sender(depth - 1) if depth else "nothing more"
        calls = [
            {"calls": [{"name": "delegate_task", "arguments": {"branch": f"feat/{depth}", "task": task}}]},
            {"calls": [{"name": "get_worker_result", "arguments": {"branch": f"feat/{depth}"}}]},
        ]
        return script_block(*calls, "done")

    (repo / ".podium" / "agents").mkdir(parents=True)
    (repo / ".podium" / "agents" / "worker.md").write_text(
        "---\ndescription: Sends others.\ntools: delegate_task, get_worker_result\n---\nWork.\n"
    )
    git(repo, "add", "-A")
    git(repo, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "agents")
    boss = Agent(name="boss", tools=("delegate_task", "get_worker_result"), prompt=sender(5))

    async with App(settings, environ={}) as app:
        await app.run(boss, "Have it done.", repo=repo)

    answers: list[str] = []
    with StoreReader(settings.store) as reader:
        for run in read_runs(settings):
            answers += [entry.event.text for entry in reader.read_entries(run) if isinstance(entry.event, ToolAnswered)]
    assert len(read_runs(settings)) == 1 + MAX_DEPTH
    assert any("workers can be nested at most 3 levels deep" in text for text in answers)


@pytest.mark.slow
async def test_time_does_not_pass_for_a_team_while_its_worker_waits_for_a_person(
    repo: Path, settings: Settings
) -> None:
    process_member = Agent(
        name="away", prompt=script_block(write_move("new.txt"), "done"), tools=("Write",), isolation="process"
    )
    team = Team(mode="broadcast", members=(Member(agent="away"),), options={"worker_timeout": 6.0})
    asking = structs.replace(settings, permissions=Permissions())
    lead = Agent(name="lead", team=team)

    async with (
        App(asking, environ={}) as app,
        app.start(lead, "Make it.", repo=repo, agents=[process_member], is_attended=True) as run,
    ):
        async for entry in run.entries():
            if isinstance(entry.event, WorkerSent):
                break
        assert isinstance(entry.event, WorkerSent)
        with Follower(settings.store, entry.event.run) as worker:
            async for one in worker:
                if isinstance(one.event, PermissionAsked):
                    break
        assert isinstance(one.event, PermissionAsked)
        with move_on_after(6.5):  # longer than the worker's time limit
            await run.result()
        answer = PermissionAnswered(id=one.event.id, decision="once", by="me", at=time.time())
        post_to_mailbox(settings.store, entry.event.run, answer, ref=one.event.id)
        result = await run.result()

    assert [part.outcome for part in result.parts] == ["succeeded"], result.parts


async def test_budget_reserved_for_a_worker_that_cannot_be_sent_is_released(repo: Path, settings: Settings) -> None:
    git(repo, "branch", "podium")  # no branch podium/… can exist beside it
    process_member = Agent(name="away", prompt=script_block("never"), isolation="process", budget=Budget(turns=4))
    here = Agent(name="here", prompt=script_block("one", "two"))
    lead = Agent(name="lead", team=Team(mode="sequential", members=(Member(agent="away"), Member(agent="here"))))

    async with App(settings, environ={}) as app:
        result = await app.run(lead, "Go.", repo=repo, agents=[process_member, here], budget=Budget(turns=4))

    assert [part.outcome for part in result.parts] == ["failed", "succeeded"], result.parts
    assert "no worker could be sent" in str(result.parts[0].failure)


async def test_a_worker_is_held_to_the_files_that_its_run_may_change(repo: Path, settings: Settings) -> None:
    process_member = Agent(
        name="away", prompt=script_block(write_move("one.txt"), write_move("two.txt"), "done"), tools=("Write",)
    )
    process_member = structs.replace(process_member, isolation="process")
    lead = Agent(name="lead", team=Team(mode="broadcast", members=(Member(agent="away"),)))

    async with App(settings, environ={}) as app:
        result = await app.run(lead, "Make files.", repo=repo, agents=[process_member], budget=Budget(files_changed=1))

    assert result.parts[0].outcome == "failed"
    assert "budget of 1 changed files would be exceeded" in str(result.parts[0].failure)
    assert str(result.parts[0].failure).count("away: ") == 1
    assert result.parts[0].text.startswith("[on branch podium/")


async def test_a_model_cannot_send_a_worker_to_a_local_server_that_nobody_has_agreed_to(
    repo: Path, settings: Settings
) -> None:
    task = {"branch": "feat/x", "task": "x", "model": "lmstudio:x"}
    boss = Agent(
        name="boss",
        tools=("delegate_task",),
        prompt=script_block({"calls": [{"name": "delegate_task", "arguments": task}]}, "done"),
    )

    async with App(settings, environ={}) as app:
        result = await app.run(boss, "Send one.", repo=repo)
        entries = await app.runs.read_entries(result.run_id)

    [answer] = [entry.event.text for entry in entries if isinstance(entry.event, ToolAnswered)]
    assert "lmstudio:x on a local model server that you have not confirmed" in answer
    assert result.text == "done"
    assert git(repo, "branch", "--list", "feat/x") == ""
