"""A team whose members work elsewhere is several runs, whose states are read together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from podium.core.timeline import Timeline
from podium.runs.queries.team_states import StateReader, read_team_states
from podium.store.reader import StoreReader
from podium.store.run_store import RunStore
from podium.values.event import RunStarted, WorkerSent
from podium.values.request import Request
from podium.views.run_state.sent_workers import SentWorkers

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RunStore]:
    async with RunStore(tmp_path / "podium.db") as opened:
        yield opened


def start_run(store: RunStore, run: str, *workers: str) -> Timeline:
    timeline = Timeline(run, store.begin_run(run))
    timeline.append(RunStarted(agent="lead", request=Request(text="go")), scope="")
    for worker in workers:
        timeline.append(WorkerSent(run=worker), scope="")
    return timeline


async def test_a_run_and_the_runs_of_its_workers_are_read_level_by_level(store: RunStore, tmp_path: Path) -> None:
    for run, workers in {"team": "ab", "a": "ca", "b": "x", "c": ""}.items():
        await start_run(store, run, *workers).wait_written()

    with StoreReader(tmp_path / "podium.db") as reader:
        states = read_team_states("team", partial(StateReader(SentWorkers).read, reader), includes=reader.has_run)

    assert {run: [*state.worker_runs] for run, state in states.items()} == {
        "team": ["a", "b"], "a": ["c", "a"], "b": ["x"], "c": []
    }  # fmt: skip
    assert [*states] == ["team", "a", "b", "c"]


async def test_a_state_goes_on_with_the_new_entries_until_it_is_not_read_any_more(
    store: RunStore, tmp_path: Path
) -> None:
    timeline = start_run(store, "team", "a")
    await timeline.wait_written()
    states = StateReader(SentWorkers)

    with StoreReader(tmp_path / "podium.db") as reader:
        first = states.read(reader, "team")
        timeline.append(WorkerSent(run="b"), scope="")
        await timeline.wait_written()
        states.forget_unread()
        second = states.read(reader, "team")
        states.forget_unread()
        states.forget_unread()
        third = states.read(reader, "team")

    assert second is first
    assert [*first.sent] == ["a", "b"]
    assert third is not first
    assert third == first
