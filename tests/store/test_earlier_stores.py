"""Stores written by earlier versions: unfinished runs in them can be resumed."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from podium import App, Settings
from podium.core.journal_rows import find_chain_break
from podium.store.reader import StoreReader
from podium.values.event import ModelReplied, OperationEnded, decode_entry

SAMPLES = sorted((Path(__file__).parents[1] / "samples").glob("store-*.sql"))
"""One for each version of the tables: a run of three agents that was interrupted after its second model call."""


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
async def test_a_run_of_an_earlier_store_is_resumed_without_repeating_a_call(sample: Path, tmp_path: Path) -> None:
    store = tmp_path / "podium.db"
    with sqlite3.connect(store) as connection:
        connection.executescript(sample.read_text(encoding="utf-8"))
    connection.close()
    with StoreReader(store) as reader:
        (summary,) = reader.list_runs()
        before = reader.read_rows(summary.id)

    async with App(Settings.load({}, home=tmp_path, model="rehearsal"), environ={}) as app:
        async with app.resume(summary.id) as run:
            result = await run.result()

    with StoreReader(store) as reader:
        after = reader.read_rows(summary.id)
    assert result.succeeded
    assert after[: len(before)] == before
    assert find_chain_break(after) is None
    events = [decode_entry(row.line).event for row in after]
    assert [event.outcome for event in events if isinstance(event, OperationEnded)] == ["succeeded"] * 3
    assert sum(isinstance(event, ModelReplied) for event in events) == 3
