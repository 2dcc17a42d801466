"""Schedules in a SQLite store: what a person enters is on no timeline, so it must survive power loss."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from podium.store import schedule_rows
from podium.store.schedule_rows import Schedule, Schedules
from podium.store.store_connection import open_connection


def test_every_change_of_a_schedule_is_synced_to_disk_before_the_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []

    def open_traced(*arguments: Any, **options: Any) -> Any:
        connection = open_connection(*arguments, **options)
        assert isinstance(connection, sqlite3.Connection)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(schedule_rows, "open_connection", open_traced)
    schedules = Schedules(tmp_path / "s.db")
    schedule = Schedule(
        id="s", cron="0 9 * * *", zone="UTC", agent="a", request="r", root="/", host="h", created=0, next_at=9
    )

    schedules.add(schedule)
    schedules.set_paused("s", True, next_at=10)
    schedules.remove("s")

    words = [statement.split()[0] for statement in statements]
    assert words == ["PRAGMA", "INSERT", "PRAGMA", "UPDATE", "PRAGMA", "DELETE"]
    assert set(statements[::2]) == {"PRAGMA synchronous = FULL"}
