"""Budgets per day, in total and for each repository: what counts, what is refused, and what resets."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from podium import Agent, App, Result, Settings
from podium.core.timeline import Timeline
from podium.engines.script import Move
from podium.runs.assembly.day_usage import DayUsage, find_midnight
from podium.store.run_store import RunStore
from podium.testing import ModelServer
from podium.values.agent import Budget
from podium.values.event import ModelReplied, RunStarted
from podium.values.request import Request
from podium.values.store_address import StoreAddress, make_postgres_address
from podium.values.usage import Usage

pytestmark = pytest.mark.anyio

NOW = find_midnight(1_794_970_000.0) + 36_000.0
"""Ten in the morning of some day."""
CALL = Move(says="done", usage=Usage(input_tokens=600, output_tokens=400))


async def add_run(store: StoreAddress, id: str, repo: str, *calls: tuple[float, int], shared: int = 0) -> None:
    """Write a run with model calls: the time of each, and its tokens."""
    async with RunStore(store) as opened:
        lease = opened.begin_run(id)
        times = iter([NOW, *(at for at, _ in calls)])
        timeline = Timeline(id, lease, clock=lambda: next(times))
        timeline.append(RunStarted(agent="a", request=Request(text="x"), repo=repo, shared=shared), scope="")
        for _, tokens in calls:
            timeline.append(ModelReplied(model="m", usage=Usage(input_tokens=tokens, calls=1)), scope="")
        opened.release_run(lease)
        await timeline.wait_written()


def make_settings(tmp_path: Path, **budgets: Any) -> Settings:
    return Settings(home=tmp_path, store=tmp_path / "podium.db", **budgets)


async def test_the_calls_of_all_runs_since_midnight_count_once(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, day_budget=Budget(tokens=900))
    usage = DayUsage(tmp_path / "podium.db", clock=lambda: NOW)
    assert isinstance(settings.store, Path)
    await add_run(settings.store, "old", "/a", (NOW - 40_000, 5_000))
    await add_run(settings.store, "one", "/a", (NOW - 50, 300), (NOW - 40, 200))
    await add_run(settings.store, "two", "/b", (NOW - 30, 300))
    await add_run(settings.store, "fork", "/a", (NOW - 40_000, 5_000), (NOW - 20, 99), shared=1)

    before = await usage.explain_used_up(settings, "/a")
    await add_run(settings.store, "three", "/b", (NOW - 10, 1))
    within = await usage.explain_used_up(settings, "/a")
    usage._read_at = 0.0
    after = await usage.explain_used_up(settings, "/a")

    assert (before, within) == ("", "")  # new entries are read every two seconds
    assert after.startswith("the daily budget of 900 tokens is used up (900 used since midnight) and resets at ")
    assert after.endswith("to continue sooner, raise budget.per_day.tokens in the settings")


async def test_a_budget_for_a_repository_counts_its_own_runs_only(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, repository_day_budget=Budget(turns=2))
    assert isinstance(settings.store, Path)
    await add_run(settings.store, "one", "/a", (NOW - 50, 300), (NOW - 40, 200))
    await add_run(settings.store, "two", "/b", (NOW - 30, 300))
    usage = DayUsage(settings.store, clock=lambda: NOW)

    here, there = [await usage.explain_used_up(settings, repo) for repo in ("/a", "/b")]

    assert here.startswith(
        "the daily budget of 2 model calls for this repository is used up (2 used since midnight) and"
    )
    assert "raise budget.per_repository_day.turns in the settings" in here
    assert there == ""


async def test_budgets_of_the_day_are_added_up_in_postgresql_too(tmp_path: Path, postgres_url: str) -> None:
    store = make_postgres_address(postgres_url, tmp_path)
    settings = Settings(
        home=tmp_path, store=store, day_budget=Budget(tokens=900), repository_day_budget=Budget(tokens=600)
    )
    await add_run(store, "old", "/a", (NOW - 40_000, 5_000))
    await add_run(store, "one", "/a", (NOW - 50, 300), (NOW - 40, 300))
    usage = DayUsage(store, clock=lambda: NOW)

    here, there = [await usage.explain_used_up(settings, repo) for repo in ("/a", "/b")]
    await add_run(store, "two", "/b", (NOW - 30, 300))
    usage._read_at = 0.0
    later = await usage.explain_used_up(settings, "/b")

    assert here.startswith(
        "the daily budget of 600 tokens for this repository is used up (600 used since midnight) and"
    )
    assert there == ""
    assert later.startswith("the daily budget of 900 tokens is used up (900 used since midnight) and")


async def test_a_budget_starts_again_at_midnight(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, day_budget=Budget(tokens=100))
    assert isinstance(settings.store, Path)
    await add_run(settings.store, "one", "/a", (NOW - 50, 300))
    clock = [NOW]
    usage = DayUsage(settings.store, clock=lambda: clock[0])

    today = await usage.explain_used_up(settings, "")
    clock[0] += 86_400
    tomorrow = await usage.explain_used_up(settings, "")

    assert today.startswith("the daily budget of 100 tokens")
    assert tomorrow == ""


async def test_a_run_beyond_the_budget_of_the_day_fails_and_says_why(tmp_path: Path) -> None:
    async with ModelServer([CALL]) as server:
        environ = {"OPENAI_API_KEY": "sk-test-test", "OPENAI_BASE_URL": server.url}
        (tmp_path / "config.yaml").write_text("budget: {tokens: 50000, per_day: {tokens: 1000}}\n")
        settings = Settings.load({**environ, "PODIUM_HOME": str(tmp_path)}, model="openai:m")
        agent = Agent(name="worker", prompt="Work.")
        async with App(settings, environ=environ) as app:
            first = await app.run(agent, "go")
        async with App(settings, environ=environ) as app:
            second = await app.run(agent, "go again")

    assert first.succeeded
    assert (second.outcome, second.usage.calls) == ("failed", 0)
    assert "the daily budget of 1,000 tokens is used up (1,000 used since midnight)" in (second.error or "")


@pytest.mark.parametrize("key", ["per_day", "per_repository_day"])
async def test_a_budget_in_the_file_of_a_repository_limits_the_runs_there(tmp_path: Path, key: str) -> None:
    repo, home = tmp_path / "repo", tmp_path / "home"
    (repo / ".git").mkdir(parents=True)
    home.mkdir()
    (home / "config.yaml").write_text(f"budget: {{{key}: {{tokens: 9000}}}}\n")
    (repo / "podium.yaml").write_text(f"budget: {{{key}: {{tokens: 1000}}}}\n")
    agent = Agent(name="worker", prompt="Work.")
    async with ModelServer([CALL]) as server:
        environ = {"OPENAI_API_KEY": "sk-test-test", "OPENAI_BASE_URL": server.url, "PODIUM_HOME": str(home)}

        async def run_in(place: Path | None) -> Result:
            settings = Settings.load(environ, place, model="openai:m")
            async with App(settings, environ=environ) as app:
                return await app.run(agent, "go", repo=place)

        first, second, elsewhere = await run_in(repo), await run_in(repo), await run_in(None)

    assert first.succeeded
    assert elsewhere.succeeded
    assert (second.outcome, second.usage.calls) == ("failed", 0)
    assert (second.error or "").endswith(f"raise budget.{key}.tokens in the repository's podium.yaml")


@pytest.mark.slow
async def test_checking_the_budget_of_the_day_is_cheap(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, day_budget=Budget(tokens=10**9))
    assert isinstance(settings.store, Path)
    for number in range(20):
        await add_run(settings.store, f"run{number}", "/a", *[(NOW - 10, 5)] * 500)
    usage = DayUsage(settings.store, clock=lambda: NOW)

    started = time.perf_counter()
    await usage.explain_used_up(settings, "/a")
    first = time.perf_counter() - started
    started = time.perf_counter()
    for _ in range(1_000):
        await usage.explain_used_up(settings, "/a")
    later = (time.perf_counter() - started) / 1_000
    print(f"first {first * 1000:.1f} ms for 10,000 calls, later {later * 1e6:.1f} µs")

    assert later < 0.002
