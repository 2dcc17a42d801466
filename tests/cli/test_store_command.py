"""`podium store`, and the commands that read an archived run: what they print, and with which exit code."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from podium.store.sqlite.schema import MIGRATIONS

from .conftest import Desk


@pytest.fixture(params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A desk with an agent, whose store is a SQLite file or a PostgreSQL database."""
    if request.param == "postgres":
        monkeypatch.setenv("PODIUM_STORE", request.getfixturevalue("postgres_url"))
    desk.write_agent("hand", "the answer")
    return desk


def call(desk: Desk, *arguments: str, code: int = 0) -> str:
    """Return what a command prints, which must end with this code."""
    said = desk.invoke(*arguments)
    assert said.exit_code == code, said.output
    return said.output


def start_run(desk: Desk) -> str:
    """Start a run, wait for its end and return its id."""
    call(desk, "run", "hand", "go")
    return str(json.loads(call(desk, "ps", "--json"))["runs"][0]["id"])


def test_a_store_is_created_and_is_up_to_date(shop: Desk) -> None:
    call(shop, "store", "migrate", code=2)
    assert "created " in call(shop, "store", "init")
    assert "there is already a store" in call(shop, "store", "init")
    assert "is up to date, version" in call(shop, "store", "migrate")


def test_migrate_names_the_migrations_that_it_applies(desk: Desk) -> None:
    call(desk, "store", "init")
    with closing(sqlite3.connect(desk.store)) as connection:
        connection.execute("ALTER TABLE schedule DROP COLUMN author")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) - 1}")

    assert "podium store migrate" in call(desk, "store", "check", code=2)
    assert f"applied 1 migration: {len(MIGRATIONS)}" in call(desk, "store", "migrate")
    assert "is intact" in call(desk, "store", "check")


def test_old_runs_are_archived_and_can_be_read_and_restored(shop: Desk) -> None:
    run = start_run(shop)
    assert "would remove 0 runs" in call(shop, "store", "prune", "--older-than", "1h", "--dry-run")
    assert "would remove 1 run" in call(shop, "store", "prune", "--older-than", "0s", "--dry-run")

    assert "removed 1 run, archived in" in call(shop, "store", "prune", "--older-than", "0s", "--state", "succeeded")

    call(shop, "show", run, code=2)
    file = str(shop.home / "archive" / f"{run}.jsonl.gz")
    assert "the answer" in call(shop, "show", "--file", file)
    assert "is intact" in call(shop, "verify", "--file", file)
    assert "succeeded" in call(shop, "logs", "--file", file, "--kind", "run_ended")
    assert "imported 1 run" in call(shop, "store", "import", file)
    assert "the answer" in call(shop, "show", run)
    assert "is intact" in call(shop, "store", "check")


def test_an_archive_that_was_cut_is_refused(desk: Desk) -> None:
    desk.write_agent("hand", "the answer")
    run = start_run(desk)
    call(desk, "store", "prune", "--older-than", "0s", "--archive", "kept")
    file = desk.repo / "kept" / f"{run}.jsonl.gz"
    file.write_bytes(file.read_bytes()[:-20])

    for command in (("show", "--file"), ("verify", "--file"), ("logs", "--file"), ("store", "import")):
        assert str(file) in call(desk, *command, str(file), code=8)


def test_a_store_moves_to_another_place(shop: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = start_run(shop)
    file = str(tmp_path / "all.jsonl.gz")
    call(shop, "store", "export", file)
    assert "already exists" in call(shop, "store", "export", file, code=2)

    monkeypatch.setenv("PODIUM_STORE", str(tmp_path / "other.db"))
    assert "imported 1 run" in call(shop, "store", "import", file)
    assert "the answer" in call(shop, "show", run)
    assert "not imported: 1 run" in call(shop, "store", "import", file)


def test_a_damaged_store_has_its_own_exit_code(desk: Desk) -> None:
    desk.write_agent("hand", "the answer")
    run = start_run(desk)
    with closing(sqlite3.connect(desk.store)) as connection:
        connection.execute("DELETE FROM entry WHERE seq = 2")
        connection.commit()

    assert f"problem: run {run} " in call(desk, "store", "check", code=8)
    result = json.loads(call(desk, "store", "check", "--json", code=8))
    assert len(result["problems"]) == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("prune",), "missing option '--older-than'"),
        (("prune", "--older-than", "soon"), "invalid age for --older-than: 'soon'"),
        (("prune", "--older-than", "1d", "--state", "running"), "is not a state of an ended run"),
        (("prune", "--older-than", "1d", "--archive", "x", "--no-archive"), "cannot be combined"),
        (("check",), "no runs yet"),
        (("export", "x"), "no runs yet"),
        (("import", "missing"), "cannot be read"),
    ],
)
def test_bad_arguments_are_explained(desk: Desk, arguments: tuple[str, ...], reason: str) -> None:
    assert reason in call(desk, "store", *arguments, code=2)


def test_a_run_or_a_file_must_be_given(desk: Desk) -> None:
    for command in ("show", "verify"):
        assert "missing argument 'RUN'" in call(desk, command, code=2)
