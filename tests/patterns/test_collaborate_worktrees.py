"""Collaborating teams whose owners work in worktrees of their own, with a model over HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio import fail_after, to_thread
from click.testing import CliRunner
from msgspec import structs

from podium import Agent, App, Result, Settings
from podium.cli.root import podium
from podium.store.follower import Follower
from podium.store.reader import StoreReader
from podium.testing import ModelServer, make_repository, read_events
from podium.values.agent import Member, Permissions, Team
from podium.values.event import (
    BallotCast,
    DecisionCommitted,
    DecisionProposed,
    PlanStepCompleted,
    PlanStepHandedOver,
    PlanStepReopened,
    PlanStepReviewed,
    PlanStepSubmitted,
    QuestionAsked,
    ToolAnswered,
    WorkEnded,
    WorkerSent,
)

from ..collaboration import Play, make_plan, make_step, use_tool


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "r", {"kept.txt": "kept\n"}, message="x")


@pytest.fixture
async def play() -> Play:
    return Play()


@pytest.fixture
async def server(play: Play) -> AsyncIterator[ModelServer]:
    async with ModelServer(otherwise=play) as server:
        yield server


@pytest.fixture
def settings(tmp_path: Path, server: ModelServer) -> Iterator[Settings]:
    home = tmp_path / "h"
    rules = Permissions(allow=("Write", "Edit", "Bash(test:*)"))
    yield Settings.load({}, home=home, model="openai:lead", base_url=server.url, permissions=rules)
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and f"PODIUM_HOME={home}\0".encode() in read_environ(process):
            os.kill(int(process.name), signal.SIGKILL)


def read_environ(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes() + b"\0"
    except OSError:
        return b""


def make_agents(*names: str, **options: Any) -> list[Agent]:
    tools = ("Read", "Write", "Edit", "Bash")
    members = tuple(Member(agent=name) for name in names)
    team = Team(mode="collaborate", members=members, options={"worktrees": "each"} | options)
    lead = Agent(name="lead", model="openai:lead", team=team)
    return [lead, *(Agent(name=name, model=f"openai:{name}", tools=tools) for name in names)]


async def run_team(settings: Settings, repo: Path, agents: list[Agent]) -> Result:
    async with App(settings, environ={}) as app:
        return await app.run(agents[0], "ship it", agents=agents, repo=repo)


def write(path: str, text: str = "x\n") -> Any:
    return use_tool("write_file", path=path, content=text)


def list_files(repo: Path, commit: str) -> list[str]:
    listing = ["git", "-C", str(repo), "ls-tree", "-r", "--name-only", commit]
    return subprocess.check_output(listing, text=True).split()


async def test_dependent_steps_begin_at_the_merged_result_and_all_of_it_is_one_branch_to_merge(
    settings: Settings, repo: Path, play: Play
) -> None:
    check = {"text": "both files are there", "command": "test -f a.txt -a -f b.txt"}
    play.replies |= {
        "plan": make_plan(
            make_step("s1", "ada"), make_step("s2", "bob"), make_step("s3", "ada", "s1", "s2", acceptance=[check])
        ),
        "step:s1": [write("a.txt"), "wrote a"],
        "step:s2": [write("b.txt"), "wrote b"],
        "step:s3": [write("c.txt"), "wrote c"],
    }

    result = await run_team(settings, repo, make_agents("ada", "bob"))

    assert result.succeeded, result.error
    (ended,) = read_events(settings.store, result, WorkEnded)
    assert ended.branch == f"podium/{result.run_id}/result"
    assert list_files(repo, ended.branch) == ["a.txt", "b.txt", "c.txt", "kept.txt"]
    assert sorted(path.name for path in repo.iterdir()) == [".git", "kept.txt"]
    assert f"podium merge {ended.branch}" in result.text

    merge = ["merge", ended.branch, "--repo", str(repo), "--yes"]
    merged = await to_thread.run_sync(
        lambda: CliRunner().invoke(podium, merge, env={"PODIUM_HOME": str(settings.home)})
    )

    assert merged.exit_code == 0, merged.stderr
    said = f"{ended.branch}: the result of lead in run {result.run_id}; steps done: s1, s2, s3\n"
    assert said in merged.stderr
    assert "not a worker's branch" not in merged.stderr


async def merge_all(settings: Settings, repo: Path, *branches: str) -> tuple[dict[str, Any], str]:
    """Merge these branches, or all that may be merged, and return what was merged and what was said."""
    merge = ["merge", *(branches or ["--all"]), "--repo", str(repo), "--yes", "--json"]
    environment = {"PODIUM_HOME": str(settings.home)}
    said = await to_thread.run_sync(lambda: CliRunner().invoke(podium, merge, env=environment))
    assert said.exit_code == 0, said.stderr
    return json.loads(said.stdout), said.stderr


async def test_all_that_may_be_merged_is_the_result_of_a_team_with_its_records_and_no_branch_of_a_step(
    settings: Settings, repo: Path, play: Play
) -> None:
    proposal = {"topic": "Which separator?", "options": ["comma", "tab"], "evidence": "RFC 4180"}
    play.replies |= {
        "plan": make_plan(make_step("s1", "ada")),
        "ada/step:s1": [
            write("wrong.txt"),
            "half of it",
            use_tool("propose_decision", **proposal),
            write("a.txt"),
            "a",
        ],
        "review:s1": ["1: NOT MET: it is wrong", "1: MET"],
        "vote": use_tool("cast_ballot", option="tab", reason="it is rare"),
    }
    lead, *members = make_agents("ada", "bob", adr=True)
    tools = ("propose_decision", "cast_ballot")
    owners = [structs.replace(one, tools=(*(one.tools or ()), *tools)) for one in members]
    result = await run_team(settings, repo, [lead, *owners])
    assert result.succeeded, result.error
    rejected, *_, accepted = [one.branch for one in read_events(settings.store, result, WorkerSent)]

    merged, said = await merge_all(settings, repo)

    assert [one["branch"] for one in merged["coupled"]] == [f"podium/{result.run_id}/result"]
    assert "docs/adr/0001-which-separator.md" in list_files(repo, "main")
    assert accepted not in said.replace(rejected, "")

    _, named = await merge_all(settings, repo, rejected)

    what = f"{rejected}: it belongs to step s1 of lead in run {result.run_id}: work of ada that the team has"
    assert f"{what} not accepted; the team's result is on podium/{result.run_id}/result\n" in named


async def test_the_result_of_a_team_that_left_work_undone_is_reached_only_by_name(
    settings: Settings, repo: Path, play: Play
) -> None:
    play.replies |= {
        "plan": make_plan(make_step("s1", "ada"), make_step("s2", "bob")),
        "ada/step:s1": [write("a.txt"), "wrote a"],
        "bob/step:s2": [write("b.txt"), "wrote b"],
        "review:s2": "1: NOT MET: it is wrong",
    }
    result = await run_team(settings, repo, make_agents("ada", "bob", max_attempts=1))
    assert not result.succeeded
    branch = f"podium/{result.run_id}/result"
    [theirs] = [one.branch for one in read_events(settings.store, result, PlanStepSubmitted) if one.step == "s2"][:1]

    merged, said = await merge_all(settings, repo)
    _, named = await merge_all(settings, repo, branch)

    assert merged["coupled"] == []
    assert f"{branch}: skipped, because part of the work of lead was not done (s2); merge the branch anyway" in said
    assert f"{theirs}: skipped, because it belongs to step s2 of lead in run {result.run_id}" in said
    assert f"{branch}: the result of lead in run {result.run_id}; steps done: s1; not done: s2" in named
    assert list_files(repo, "main") == ["a.txt", "kept.txt"]


@pytest.mark.slow
async def test_a_handover_and_a_reopened_step_begin_at_the_commit_of_the_earlier_owner(
    settings: Settings, repo: Path, play: Play
) -> None:
    play.replies |= {
        "plan": make_plan(make_step("s1", "ada")),
        "ada/step:s1": [write("a.txt"), use_tool("handoff_step", to="bob", reason="half", context="b is open")],
        "bob/step:s1": [write("b.txt"), "wrote b", write("c.txt"), "wrote c"],
        "review:s1": ["1: NOT MET: c is missing", "1: MET"],
    }

    result = await run_team(settings, repo, make_agents("ada", "bob"))

    assert result.succeeded, result.error
    (over,) = read_events(settings.store, result, PlanStepHandedOver)
    assert (over.sender, over.receiver, over.refused) == ("ada", "bob", "")
    assert len(read_events(settings.store, result, PlanStepReopened)) == 1
    first, second = read_events(settings.store, result, PlanStepSubmitted)
    assert first.branch != second.branch
    assert list_files(repo, second.commit) == ["a.txt", "b.txt", "c.txt", "kept.txt"]
    theirs, *ours = (one.task for one in read_events(settings.store, result, WorkerSent))
    assert "earlier work" not in theirs
    for task in ours:
        work = task.partition("[context for you only: earlier work by ada on this step]\n")[2]
        assert work.startswith("> Files changed (1):\n> - a.txt\n> Tool calls (2):\n> - write_file path=a.txt")
    assert "> - it works: c is missing" in ours[1]
    assert "[context for you only: earlier work by bob on this step]\n> Files changed (1):\n> - b.txt" in ours[1]
    assert read_events(settings.store, result, PlanStepReviewed)[0].reviewer == "lead"
    assert read_events(settings.store, result, PlanStepCompleted)[0].owner == "bob"


def invoke_podium(settings: Settings, *arguments: str, **variables: str) -> str:
    environment = {"PODIUM_HOME": str(settings.home), **variables}
    said = CliRunner().invoke(podium, list(arguments), env=environment)
    assert said.exit_code == 0, said.stderr
    return str(said.stdout)


async def test_the_plan_of_a_team_with_its_own_checkout_is_found_by_the_run_that_was_started(
    settings: Settings, repo: Path, play: Play
) -> None:
    play.replies |= {"plan": make_plan(make_step("s1", "ada")), "step:s1": [write("a.txt"), "wrote a"]}

    result = await run_team(settings, repo, make_agents("ada", "bob", worktrees="team"))

    assert result.succeeded, result.error
    run = result.run_id
    assert invoke_podium(settings, "plan", run).splitlines()[1].split()[:3] == ["done", "s1", "ada"]
    [team] = json.loads(invoke_podium(settings, "plan", run, "--json"))["teams"]
    assert (team["state"], team["run"] == run) == ("completed", False)
    assert "s1-1.diff" in invoke_podium(settings, "artifacts", run)
    assert "+x" in invoke_podium(settings, "artifacts", run, "s1-1.diff")
    ended = json.loads(invoke_podium(settings, "status", "--json"))["ended"]
    assert next(one["steps"] for one in ended if one["id"] == run) == {"done": 1, "total": 1}
    assert sorted(path.name for path in repo.iterdir()) == [".git", "kept.txt"]


async def test_the_waiting_plan_of_a_team_with_its_own_checkout_is_edited_by_the_run_that_was_started(
    settings: Settings, repo: Path, play: Play, tmp_path: Path
) -> None:
    play.replies |= {"plan": make_plan(make_step("s1", "ada"))}
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i -e 's/owner: ada/owner: bob/' \"$1\"\n")
    editor.chmod(0o755)
    agents = make_agents("ada", "bob", worktrees="team", approve_plan="person")

    async with App(settings, environ={}) as app:
        async with app.start(agents[0], "ship it", agents=agents, repo=repo, is_attended=True) as run:
            async for entry in run.entries():
                if isinstance(entry.event, WorkerSent):
                    await wait_for_question(settings, entry.event.run)
                    await to_thread.run_sync(
                        lambda: invoke_podium(settings, "plan", run.id, "--edit", EDITOR=str(editor))
                    )
            result = await run.result()

    assert result.succeeded, result.error
    assert invoke_podium(settings, "plan", run.id).splitlines()[1].split()[:3] == ["done", "s1", "bob"]


async def wait_for_question(settings: Settings, run: str) -> None:
    """Wait until a worker's run asks the user a question."""
    with fail_after(30), Follower(settings.store, run, 0) as entries:
        async for entry in entries:
            if isinstance(entry.event, QuestionAsked):
                return


async def test_a_reviewer_reads_the_files_of_the_step_and_not_those_of_the_runs_checkout(
    settings: Settings, repo: Path, play: Play
) -> None:
    play.replies |= {
        "plan": make_plan(make_step("s1", "ada")),
        "step:s1": [write("a.txt", "written by ada\n"), "wrote a"],
        "review:s1": [use_tool("read_file", path="a.txt"), use_tool("bash", command="cat a.txt"), "1: MET"],
    }

    result = await run_team(settings, repo, make_agents("ada", "bob"))

    assert result.succeeded, result.error
    read, shell = read_events(settings.store, result, ToolAnswered)
    assert "written by ada" in read.text
    assert shell.is_error  # no sandbox is prepared for this checkout, so the reviewer cannot run commands in it
    worktrees = subprocess.check_output(["git", "-C", repo, "worktree", "list", "--porcelain"], text=True)
    assert worktrees.count("worktree ") == 2  # the run's and ada's; the one for the review is gone


@pytest.mark.slow
async def test_an_owner_in_a_worktree_lets_the_team_decide_and_continues_with_the_result(
    settings: Settings, repo: Path, play: Play
) -> None:
    proposal = {"topic": "Which separator?", "options": ["comma", "tab"], "evidence": "RFC 4180"}
    play.replies |= {
        "plan": make_plan(make_step("s1", "ada")),
        "ada/step:s1": [
            write("a.txt"),
            use_tool("propose_decision", **proposal | {"options": ["comma", "Comma"]}),
            use_tool("propose_decision", **proposal),
            write("b.txt"),
            "wrote both",
        ],
        "vote": use_tool("cast_ballot", option="tab", reason="it is rare"),
    }
    lead, *members = make_agents("ada", "bob", vote="unanimous")
    ada, bob = (structs.replace(one, tools=(*(one.tools or ()), "propose_decision", "cast_ballot")) for one in members)

    result = await run_team(settings, repo, [lead, ada, bob])

    assert result.succeeded, result.error
    (proposed,) = read_events(settings.store, result, DecisionProposed)
    assert (proposed.by, proposed.step, proposed.rule) == ("ada", "s1", "unanimous")
    assert (proposed.options, proposed.evidence) == (("comma", "tab"), "RFC 4180")
    assert {one.voter for one in read_events(settings.store, result, BallotCast)} == {"ada", "bob"}
    (made,) = read_events(settings.store, result, DecisionCommitted)
    assert (made.option, made.how) == ("tab", "unanimous")
    first, second = read_events(settings.store, result, WorkerSent)
    assert "The team decided (unanimous):" in second.task
    with StoreReader(settings.store) as reader:
        answers = [entry.event for entry in reader.read_entries(first.run) if isinstance(entry.event, ToolAnswered)]
    assert [one.is_error for one in answers] == [False, True, False]
    assert "This cannot be decided: the option 'comma' is listed twice" in answers[1].text
    (ended,) = read_events(settings.store, result, WorkEnded)
    assert list_files(repo, ended.branch) == ["a.txt", "b.txt", "kept.txt"]
