"""The ratchet: a reflecting team delivers its best iteration, and `keep: best` restores its files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podium import Agent, App, Result, Settings
from podium.engines.model.model_wire import ModelCall
from podium.store.fault_injection import Fault, refuse_after
from podium.testing import ModelServer, Move, calls, format_script
from podium.values.agent import Permissions
from podium.values.event import Noticed, ReflectEnded, SnapshotTaken, WorkRestored

from ..studio import Studio, expire_leases
from ..workspace.merging import Repo

pytestmark = pytest.mark.anyio

PLANS = ("first", "second", "third")
SCORES = {"first": 0.4, "second": 0.8, "third": 0.2}


def play(call: ModelCall) -> Move:
    """Play the judge, who scores the second iteration best, and the hand, who writes another file each time."""
    last = call.messages[-1].text
    word = next(one for one in reversed(PLANS) if any(one in message.text for message in call.messages))
    if "You judge" in call.system:
        return Move(says=json.dumps({"score": SCORES[word], "rationale": f"{word} as judged"}))
    if call.messages[-1].role == "tool":
        return Move(says=f"{word} is written")
    assert word in last
    return calls("write_file", path=f"{word}.txt", content=f"{word}\n")


def make_team(**options: Any) -> list[Agent]:
    moves = [move for word in PLANS for move in (json.dumps([{"worker": "hand", "task": word}]), f"all of {word} done")]
    lead = Agent(
        name="lead",
        prompt=format_script(*moves),
        team={"mode": "reflect", "members": ["hand"], "evaluator": "judge", "max_iterations": 3, **options},
    )
    hand = Agent(name="hand", prompt="You write.", tools=("Write",))
    return [lead, hand, Agent(name="judge", prompt="You judge.")]


def make_settings(home: Path, url: str) -> Settings:
    return Settings.load({}, home=home, model="openai:m", base_url=url, permissions=Permissions(allow=("Write",)))


async def run_team(repo: Repo, settings: Settings, *, fault: Fault | None = None, **options: Any) -> Result:
    lead, *others = make_team(**options)
    async with App(settings, environ={"OPENAI_API_KEY": "k"}, fault=fault) as app:
        return await app.run(lead, "do it", agents=others, repo=repo.path)


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


def list_written(repo: Repo) -> list[str]:
    return [word for word in PLANS if (repo.path / f"{word}.txt").exists()]


async def test_the_best_iteration_is_delivered_and_its_files_are_restored(repo: Repo, tmp_path: Path) -> None:
    (repo.path / "a.txt").write_text("the person's own change\n")

    async with ModelServer(otherwise=play) as server:
        result = await run_team(repo, make_settings(tmp_path / "home", server.url), keep="best")

    studio = Studio(tmp_path / "home")
    assert result.outcome == "failed"
    [ended] = studio.events(result, ReflectEnded)
    assert (ended.end, ended.iterations, ended.best, ended.score) == ("max_iterations", 3, 2, 0.8)
    assert "the best iteration was 2, with a score of 0.8" in (result.error or "")
    assert any("all of second done" in part.text for part in result.parts)
    taken = {one.name: one.commits[""] for one in studio.events(result, SnapshotTaken)}
    assert list(taken) == ["iteration-1", "iteration-2", "iteration-3", "before-best"]
    [restored] = studio.events(result, WorkRestored)
    assert (restored.iteration, restored.commit) == (2, taken["iteration-2"])
    assert list_written(repo) == ["first", "second"]
    assert (repo.path / "a.txt").read_text() == "the person's own change\n"
    assert repo.git("show", f"{taken['before-best']}:third.txt") == "third"
    assert repo.git("status", "--short") == "M a.txt\n?? first.txt\n?? second.txt"


async def test_without_the_key_only_the_answer_is_the_best(repo: Repo, tmp_path: Path) -> None:
    async with ModelServer(otherwise=play) as server:
        result = await run_team(repo, make_settings(tmp_path / "home", server.url))

    assert "the best iteration was 2" in (result.error or "")
    assert list_written(repo) == [*PLANS]


async def test_where_no_snapshot_can_be_taken_the_loop_goes_on_and_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()

    async with ModelServer(otherwise=play) as server:
        settings = make_settings(tmp_path / "home", server.url)
        lead, *others = make_team(keep="best")
        async with App(settings, environ={"OPENAI_API_KEY": "k"}) as app:
            result = await app.run(lead, "do it", agents=others, repo=folder)

    notices = [one.text for one in Studio(tmp_path / "home").events(result, Noticed)]
    assert "the best iteration was 2" in (result.error or "")
    assert sum("the files of iteration" in text and "were not saved" in text for text in notices) == 3


async def test_a_run_that_is_killed_around_the_restoring_ends_the_same(repo: Repo, tmp_path: Path) -> None:
    async with ModelServer(otherwise=play) as server:
        whole = await run_team(repo, make_settings(tmp_path / "home", server.url), keep="best")
        kinds = Studio(tmp_path / "home").kinds(whole)
        first = kinds.index("snapshot_taken", kinds.index("snapshot_taken") + 1)
        for number in (first + 1, len(kinds) - 4, len(kinds) - 3):
            for word in PLANS:
                (repo.path / f"{word}.txt").unlink(missing_ok=True)
            settings = make_settings(tmp_path / str(number), server.url)
            killed = await run_team(repo, settings, keep="best", fault=refuse_after(number))
            assert killed.outcome == "interrupted"
            expire_leases(settings.store)
            async with App(settings, environ={"OPENAI_API_KEY": "k"}) as app, app.resume(killed.run_id) as resumed:
                result = await resumed.result()
            assert result.error == whole.error
            assert list_written(repo) == ["first", "second"]
            assert len(Studio(tmp_path / str(number)).events(killed.run_id, WorkRestored)) == 1
