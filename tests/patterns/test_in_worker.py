"""Members that work away, in a process and a checkout of their own; and agents that send workers themselves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio import move_on_after
from msgspec import structs

from podium import Agent, App, Settings
from podium.store.fault import refuse_after
from podium.store.follower import Follower
from podium.store.sqlite.mailbox import post_to_mailbox
from podium.store.sqlite.reader import StoreReader
from podium.store.sqlite.worker_index import WorkerIndex
from podium.testing import ModelServer
from podium.values.agent import Budget, Member, Permissions, Team
from podium.values.errors import Mistake
from podium.values.event import (
    OperationEnded,
    PermissionAnswered,
    PermissionAsked,
    RunEnded,
    RunStarted,
    ToolAnswered,
    TurnStarted,
    WorkCommitted,
    WorkerReturned,
    WorkerSent,
)
from podium.workers.local_placement import MAX_DEPTH

from ..studio import bury


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "r"
    folder.mkdir()
    (folder / "kept.txt").write_text("kept\n")
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", folder, *words], check=True)
    return folder


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
def settings(tmp_path: Path, server: ModelServer) -> Iterator[Settings]:
    home = tmp_path / "h"
    made = Settings.load(
        {}, home=home, model="openai:m", base_url=server.url, permissions=Permissions(allow=("Write",))
    )
    yield made
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and f"PODIUM_HOME={home}\0".encode() in _environ(process):
            os.kill(int(process.name), signal.SIGKILL)


def _environ(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes() + b"\0"
    except OSError:
        return b""


def scripted(*moves: Any) -> str:
    return f"```script\n{json.dumps(moves)}\n```"


def writes(name: str) -> dict[str, Any]:
    return {"calls": [{"name": "write_file", "arguments": {"path": name, "content": f"{name}\n"}}]}


def git(repo: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", repo, *words], check=True, capture_output=True, text=True).stdout


async def test_a_member_with_a_process_of_its_own_answers_and_leaves_its_work_on_a_branch(
    repo: Path, settings: Settings
) -> None:
    away = Agent(name="away", prompt=scripted(writes("new.txt"), "I made it."), tools=("Write",), isolation="process")
    here = Agent(name="here", prompt=scripted("I only watched."))
    lead = Agent(name="lead", team=Team(mode="broadcast", members=(Member(agent="away"), Member(agent="here"))))

    async with App(settings, environ={}) as app:
        result = await app.run(lead, "Make a file.", repo=repo, agents=[away, here])
        entries = await app.launcher.read_entries(result.run_id)

    assert [part.outcome for part in result.parts] == ["succeeded", "succeeded"]
    assert result.parts[0].text.startswith("I made it.")
    [sent] = [entry.event for entry in entries if isinstance(entry.event, WorkerSent)]
    [returned] = [entry.event for entry in entries if isinstance(entry.event, WorkerReturned)]
    assert returned.usage.calls == 2
    assert result.usage.calls == 3
    assert git(repo, "show", f"{sent.branch}:new.txt") == "new.txt\n"
    assert not (repo / "new.txt").exists()
    with StoreReader(settings.store) as reader:
        left = [entry.event for entry in reader.read_entries(sent.run) if isinstance(entry.event, WorkCommitted)]
    assert left[0].files == ("new.txt",)


async def test_stopping_a_run_ends_the_workers_that_it_sent(repo: Path, settings: Settings) -> None:
    away = Agent(name="away", prompt=scripted({"says": "never", "silent": True}), isolation="process")
    lead = Agent(name="lead", team=Team(mode="broadcast", members=(Member(agent="away"),)))

    async with App(settings, environ={}) as app, app.start(lead, "Wait.", repo=repo, agents=[away]) as run:
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


async def test_a_run_that_waits_for_a_worker_has_another_commander_see_to_it_when_that_dies(
    repo: Path, settings: Settings, server: ModelServer
) -> None:
    away = Agent(name="away", prompt=scripted({"says": "I am back.", "silent": 1}), isolation="process")
    lead = Agent(name="lead", team=Team(mode="broadcast", members=(Member(agent="away"),)))

    async with App(settings, environ={}) as app, app.start(lead, "Wait.", repo=repo, agents=[away]) as run:
        await server.wait_calls(1)
        for pid in commanders(settings):
            os.kill(pid, signal.SIGKILL)
        result = await run.result()

    assert [part.outcome for part in result.parts] == ["succeeded"], result.parts
    assert result.parts[0].text.startswith("I am back.")


def commanders(settings: Settings) -> list[int]:
    ours = [one for one in Path("/proc").glob("[0-9]*") if f"={settings.home}\0".encode() in _environ(one)]
    return [int(one.name) for one in ours if b"podium.processes.commander_main" in (one / "cmdline").read_bytes()]


async def test_an_agent_sends_a_worker_waits_for_it_and_uses_what_it_brought(repo: Path, settings: Settings) -> None:
    task = scripted(writes("by-worker.txt"), "The worker is done.")
    boss = Agent(
        name="boss",
        tools=("delegate_task", "check_workers", "get_worker_result", "cancel_worker"),
        prompt=scripted(
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
        entries = await app.launcher.read_entries(result.run_id)

    assert result.text == "All is done."
    told = [entry.event.text for entry in entries if isinstance(entry.event, ToolAnswered)]
    assert told[0].startswith("A worker is on feat/x")
    assert told[1].startswith("The worker is done.")
    assert told[2] == "feat/x: succeeded"
    assert told[3].startswith("You have sent no worker to 'nobody'")
    assert told[4] == "The worker on feat/x was over already (succeeded)."
    assert git(repo, "show", "feat/x:by-worker.txt") == "by-worker.txt\n"
    assert all(entry.event.outcome == "succeeded" for entry in entries if isinstance(entry.event, OperationEnded))


async def test_a_run_that_dies_while_its_worker_is_away_finds_it_again(repo: Path, settings: Settings) -> None:
    away = Agent(name="away", prompt=scripted(writes("new.txt"), "I made it."), tools=("Write",), isolation="process")
    lead = Agent(name="lead", team=Team(mode="broadcast", members=(Member(agent="away"),)))
    sent_at = 4  # the run, the lead, the member, and that its worker is sent

    async with App(settings, environ={}, fault=refuse_after(sent_at)) as app:
        died = await app.run(lead, "Make a file.", repo=repo, agents=[away])
    assert died.outcome == "interrupted"
    bury(settings.store)
    async with App(settings, environ={}) as app, app.resume(died.run_id) as resumed:
        result = await resumed.result()
        entries = await app.launcher.read_entries(died.run_id)

    assert result.succeeded, result.error
    sent = [entry.event for entry in entries if isinstance(entry.event, WorkerSent)]
    assert [entry.seq for entry in entries if isinstance(entry.event, WorkerSent)] == [sent_at]
    assert git(repo, "rev-list", "--count", f"HEAD..{sent[0].branch}") == "1\n"


# Where the members of a team work


def builder(name: str) -> Agent:
    return Agent(name=name, prompt=scripted(writes(f"{name}.txt"), f"{name} is done."), tools=("Write",))


def crew(worktrees: str, *names: str) -> tuple[Agent, list[Agent]]:
    team = Team(mode="broadcast", members=tuple(Member(agent=name) for name in names), options={"worktrees": worktrees})
    return Agent(name="crew", team=team), [builder(name) for name in names]


def runs_of(settings: Settings) -> dict[str, RunStarted]:
    with StoreReader(settings.store) as reader:
        began = {summary.id: summary.first.event for summary in reader.list_runs()}
    return {run: event for run, event in began.items() if isinstance(event, RunStarted)}


async def test_a_team_with_one_checkout_works_in_it_as_a_whole(repo: Path, settings: Settings) -> None:
    lead, members = crew("team", "one", "two")

    async with App(settings, environ={}) as app:
        result = await app.run(lead, "Make files.", repo=repo, agents=members)
        entries = await app.launcher.read_entries(result.run_id)

    assert result.succeeded, result.error
    assert "one is done." in result.text
    assert "two is done." in result.text
    [sent] = [entry.event for entry in entries if isinstance(entry.event, WorkerSent)]
    assert set(git(repo, "diff", "--name-only", f"HEAD..{sent.branch}").split()) == {"one.txt", "two.txt"}
    assert sorted(runs_of(settings)) == sorted([result.run_id, sent.run])
    assert git(repo, "status", "--porcelain") == ""


async def test_members_share_a_checkout_beside_that_of_their_lead(repo: Path, settings: Settings) -> None:
    lead, members = crew("lead", "one", "two", "three")

    async with App(settings, environ={}) as app:
        result = await app.run(lead, "Make files.", repo=repo, agents=members)

    assert result.succeeded, result.error
    errands = [began.errand for began in runs_of(settings).values() if began.errand is not None]
    shared = [errand for errand in errands if errand.is_shared]
    [own] = [errand for errand in errands if not errand.is_shared]
    assert len(shared) == 3
    assert len({(errand.branch, errand.path) for errand in shared}) == 1
    names = {"one.txt", "two.txt", "three.txt"}
    assert set(git(repo, "diff", "--name-only", f"HEAD..{shared[0].branch}").split()) == names
    assert git(repo, "diff", "--name-only", f"HEAD..{own.branch}") == ""
    assert git(Path(shared[0].path), "status", "--porcelain") == ""


async def test_each_member_has_a_checkout_of_its_own_unless_its_file_says_otherwise(
    repo: Path, settings: Settings
) -> None:
    lead, members = crew("each", "one", "two")

    async with App(settings, environ={}) as app:
        result = await app.run(lead, "Make files.", repo=repo, agents=members)

    assert result.succeeded, result.error
    errands = [began.errand for began in runs_of(settings).values() if began.errand is not None]
    files = {git(repo, "diff", "--name-only", f"HEAD..{errand.branch}") for errand in errands}
    assert files == {"one.txt\n", "two.txt\n"}


@pytest.mark.parametrize("worktrees", ["team", "lead", "each"])
async def test_checkouts_for_a_team_need_a_repository(worktrees: str, tmp_path: Path, settings: Settings) -> None:
    lead, members = crew(worktrees, "one")

    async with App(settings, environ={}) as app:
        with pytest.raises(Mistake, match=f"crew has worktrees: {worktrees}, .* git init makes one"):
            await app.run(lead, "Make files.", repo=tmp_path, agents=members)


# What they may use


async def test_a_worker_is_held_to_its_part_of_the_runs_budget(repo: Path, settings: Settings) -> None:
    away = Agent(name="away", prompt=scripted(writes("new.txt"), writes("newer.txt"), "done"), tools=("Write",))
    away = structs.replace(away, isolation="process")
    lead = Agent(name="lead", team=Team(mode="broadcast", members=(Member(agent="away"),)))

    async with App(settings, environ={}) as app:
        result = await app.run(lead, "Make files.", repo=repo, agents=[away], budget=Budget(turns=8))
        entries = await app.launcher.read_entries(result.run_id)

    [sent] = [entry.event for entry in entries if isinstance(entry.event, WorkerSent)]
    assert sent.budget == Budget(turns=2)
    assert result.parts[0].outcome == "failed"
    assert "budget of 2 model calls has no room" in str(result.parts[0].failure)
    assert result.usage.calls == 2


async def test_what_is_kept_for_workers_is_not_lent_or_spent_twice(repo: Path, settings: Settings) -> None:
    task = scripted({"says": "never", "silent": True})
    boss = Agent(
        name="boss",
        tools=("delegate_task", "cancel_worker"),
        prompt=scripted(
            {"calls": [{"name": "delegate_task", "arguments": {"branch": "feat/x", "task": task}}]},
            {"calls": [{"name": "delegate_task", "arguments": {"branch": "feat/y", "task": task}}]},
            "They are on their way.",
        ),
    )

    async with App(settings, environ={}) as app:
        result = await app.run(boss, "Have it done.", repo=repo, budget=Budget(turns=10))
        entries = await app.launcher.read_entries(result.run_id)

    sent = [entry.event.budget for entry in entries if isinstance(entry.event, WorkerSent)]
    assert sent == [Budget(turns=2), Budget(turns=1)]  # a quarter of nine, and of six


async def test_a_worker_whose_answer_nobody_asks_for_counts_once_and_what_was_kept_for_it_is_free_again(
    repo: Path, settings: Settings
) -> None:
    def send(branch: str) -> dict[str, Any]:
        return {"calls": [{"name": "delegate_task", "arguments": {"branch": branch, "task": scripted("done")}}]}

    async def wait() -> str:
        """Wait until all workers are through."""
        for hired in WorkerIndex(settings.store).list_all():
            with Follower(settings.store, hired.run) as worker:
                async for entry in worker:
                    if isinstance(entry.event, RunEnded):
                        break
        return "They are through."

    waits = {"calls": [{"name": "wait", "arguments": {}}]}
    moves = (send("a"), waits, send("b"), waits, "Well.")
    boss = Agent(name="boss", tools=("delegate_task", "wait"), prompt=scripted(*moves))

    async with App(settings, environ={}) as app:
        result = await app.run(boss, "Have it done.", repo=repo, tools=[wait], budget=Budget(turns=20))
        entries = await app.launcher.read_entries(result.run_id)

    assert result.succeeded, result.error
    sent = [entry.event for entry in entries if isinstance(entry.event, WorkerSent)]
    assert [one.budget for one in sent] == [Budget(turns=4), Budget(turns=4)]  # a quarter of 19, and of 20 - 3 - 1
    returned = [entry.event for entry in entries if isinstance(entry.event, WorkerReturned)]
    assert [(one.run, one.usage.calls) for one in returned] == [(one.run, 1) for one in sent]
    assert result.usage.calls == 5 + 2


async def test_an_agent_says_who_works_after_whom_with_what_and_within_which_limits(
    repo: Path, settings: Settings
) -> None:
    def send(branch: str, **more: Any) -> dict[str, Any]:
        task = {"branch": branch, "task": "Do it.", **more}
        return {"calls": [{"name": "delegate_task", "arguments": task}]}

    writer = Agent(name="writer", prompt=scripted(writes("new.txt"), "written"), tools=("Write",))
    small = Agent(name="small", prompt=scripted("read"), tools=("Write",), budget=Budget(turns=2, seconds=500))
    boss = Agent(
        name="boss",
        tools=("delegate_task", "get_worker_result"),
        agents=("writer", "small"),
        prompt=scripted(
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
        entries = await app.launcher.read_entries(result.run_id)
        sent = [entry.event for entry in entries if isinstance(entry.event, WorkerSent)]
        started = [(await app.launcher.read_entries(one.run))[0].event for one in sent]

    told = [entry.event.text for entry in entries if isinstance(entry.event, ToolAnswered)]
    assert told[3] == "There is no agent 'stranger' here; there are: boss, writer, small."
    assert told[4].startswith("You have sent no worker to 'z'")
    assert told[5].startswith("delegate_task cannot be called so: Expected `int` >= 1")
    assert told[6].startswith("read")
    assert [one.branch for one in sent] == ["a", "b", "c"]
    assert [one.budget for one in sent] == [Budget(turns=9), Budget(turns=12), Budget(turns=2)]
    last = started[2]
    assert isinstance(last, RunStarted)
    assert last.errand is not None
    assert (last.errand.is_reader, last.errand.after) == (True, (sent[0].run, sent[1].run))
    assert (last.agents[0].model, last.agents[0].tools) == ("openai:n", None)
    assert last.agents[0].budget == Budget(turns=2, seconds=60)
    assert last.settings["permission_mode"] == "plan"


async def test_a_worker_does_not_send_workers_without_end(repo: Path, settings: Settings) -> None:
    def sender(depth: int) -> str:
        task = sender(depth - 1) if depth else "nothing more"
        calls = [
            {"calls": [{"name": "delegate_task", "arguments": {"branch": f"feat/{depth}", "task": task}}]},
            {"calls": [{"name": "get_worker_result", "arguments": {"branch": f"feat/{depth}"}}]},
        ]
        return scripted(*calls, "done")

    (repo / ".podium" / "agents").mkdir(parents=True)
    (repo / ".podium" / "agents" / "worker.md").write_text(
        "---\ndescription: Sends others.\ntools: delegate_task, get_worker_result\n---\nWork.\n"
    )
    git(repo, "add", "-A")
    git(repo, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "agents")
    boss = Agent(name="boss", tools=("delegate_task", "get_worker_result"), prompt=sender(5))

    async with App(settings, environ={}) as app:
        await app.run(boss, "Have it done.", repo=repo)

    told: list[str] = []
    with StoreReader(settings.store) as reader:
        for run in runs_of(settings):
            told += [entry.event.text for entry in reader.read_entries(run) if isinstance(entry.event, ToolAnswered)]
    assert len(runs_of(settings)) == 1 + MAX_DEPTH
    assert any("workers send workers no more than 3 deep" in text for text in told)


async def test_time_does_not_pass_for_a_team_while_its_worker_waits_for_a_person(
    repo: Path, settings: Settings
) -> None:
    away = Agent(name="away", prompt=scripted(writes("new.txt"), "done"), tools=("Write",), isolation="process")
    team = Team(mode="broadcast", members=(Member(agent="away"),), options={"worker_timeout": 6.0})
    asking = structs.replace(settings, permissions=Permissions())
    lead = Agent(name="lead", team=team)

    async with (
        App(asking, environ={}) as app,
        app.start(lead, "Make it.", repo=repo, agents=[away], is_attended=True) as run,
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
        with move_on_after(6.5):  # longer than the worker may take
            await run.result()
        answer = PermissionAnswered(id=one.event.id, decision="once", by="me", at=time.time())
        post_to_mailbox(settings.store, entry.event.run, answer, ref=one.event.id)
        result = await run.result()

    assert [part.outcome for part in result.parts] == ["succeeded"], result.parts


async def test_what_was_kept_for_a_worker_that_cannot_be_sent_is_free_again(repo: Path, settings: Settings) -> None:
    git(repo, "branch", "podium")  # no branch podium/… can be beside it
    away = Agent(name="away", prompt=scripted("never"), isolation="process", budget=Budget(turns=4))
    here = Agent(name="here", prompt=scripted("one", "two"))
    lead = Agent(name="lead", team=Team(mode="sequential", members=(Member(agent="away"), Member(agent="here"))))

    async with App(settings, environ={}) as app:
        result = await app.run(lead, "Go.", repo=repo, agents=[away, here], budget=Budget(turns=4))

    assert [part.outcome for part in result.parts] == ["failed", "succeeded"], result.parts
    assert "no worker could be sent" in str(result.parts[0].failure)


async def test_a_worker_is_held_to_the_files_that_its_run_may_change(repo: Path, settings: Settings) -> None:
    away = Agent(name="away", prompt=scripted(writes("one.txt"), writes("two.txt"), "done"), tools=("Write",))
    away = structs.replace(away, isolation="process")
    lead = Agent(name="lead", team=Team(mode="broadcast", members=(Member(agent="away"),)))

    async with App(settings, environ={}) as app:
        result = await app.run(lead, "Make files.", repo=repo, agents=[away], budget=Budget(files_changed=1))

    assert result.parts[0].outcome == "failed"
    assert "budget of 1 changed files is used up" in str(result.parts[0].failure)
