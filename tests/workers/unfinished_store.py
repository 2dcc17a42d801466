"""A store with unfinished work, as a version of Podium left it: saved as a sample, and restored at another place.

`python -m tests.workers.unfinished_store VERSION` writes the sample of the version that it is run with.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

from podium.cli.output import exit_codes
from podium.core.journal_rows import GENESIS, chain_hash
from podium.core.placement import WorkerOptions
from podium.testing import ModelServer
from podium.values.event import PermissionAsked

from .worker_lab import TOOLS, WorkerLab, call, make_scripted_agent, write

SAMPLES = Path(__file__).parents[1] / "samples"

PRAGMAS = ("application_id", "user_version")

ASKS = "feat/asks"
WAITS = "feat/waits"


async def main() -> None:
    """Leave work unfinished in a new store, and save the store as a sample."""
    with TemporaryDirectory(prefix="pdm-") as folder:
        async with ModelServer() as server:
            lab = WorkerLab(Path(folder).resolve(), server)
            try:
                await leave_unfinished(lab)
            finally:
                await lab.close()
        save_store(lab, SAMPLES / f"unfinished-{sys.argv[1]}.json")


async def leave_unfinished(lab: WorkerLab) -> None:
    """Leave a worker with an open request, a worker that waits for it, and a parked run with a question."""
    asks = await lab.delegate(ASKS, write("one.txt"), call("bash", command="touch two.txt"), "done", allow=("Write",))
    await lab.delegate(WAITS, write("three.txt"), "done", options=WorkerOptions(after=(ASKS,)))
    commander = lab.start_commander()
    await lab.wait_for_event(asks, PermissionAsked)
    worker = await lab.wait_worker(asks)
    commander.kill()
    commander.wait()
    worker.kill()
    await lab.wait_no_processes()
    agent = make_scripted_agent(call("ask_person", question="Which colour?"), "done", tools=(*TOOLS, "ask_person"))
    lab.write_agent(agent)
    parked = await lab.run_podium("run", "hand", "paint the shed", "--park")
    assert parked.returncode == exit_codes.ASKS, parked.stderr


def save_store(lab: WorkerLab, path: Path) -> None:
    """Save the tables of a store. The repository, the first commit and the model's address become names."""
    names = list_names(lab)
    with closing(sqlite3.connect(lab.home / "podium.db")) as connection:
        statements = [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
        listed = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        tables = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for (name,) in listed}
        pragmas = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in PRAGMAS}

    def encode(value: Any) -> Any:
        text = value.decode(errors="replace") if isinstance(value, bytes) else value
        if isinstance(text, str):
            for name, here in names.items():
                text = text.replace(here, name)
        return {"bytes": text} if isinstance(value, bytes) else text

    rows = {name: [[encode(value) for value in row] for row in table] for name, table in tables.items()}
    path.write_text(json.dumps({"pragmas": pragmas, "statements": statements, "tables": rows}, indent=1) + "\n")


def restore_store(lab: WorkerLab, path: Path) -> None:
    """Write a saved store into a lab, with the names replaced by what they are here, and with hashes that fit."""
    names = list_names(lab)
    saved = json.loads(path.read_text())
    previous: dict[str, bytes] = {}

    def decode(value: Any) -> Any:
        text = value["bytes"] if isinstance(value, dict) else value
        if isinstance(text, str):
            for name, here in names.items():
                text = text.replace(name, here)
        return text.encode() if isinstance(value, dict) else text

    def rehash(entry: list[Any]) -> list[Any]:
        run, line = entry[0], entry[5]
        previous[run] = chain_hash(previous.get(run, GENESIS), line)
        return [*entry[:6], previous[run]]

    lab.home.mkdir(mode=0o700, exist_ok=True)
    with closing(sqlite3.connect(lab.home / "podium.db")) as connection:
        for sql in saved["statements"]:
            if "sqlite_sequence" not in sql:
                connection.execute(sql)
        for name, rows in saved["tables"].items():
            for row in rows:
                values = [*map(decode, row)]
                values = rehash(values) if name == "entry" else values
                connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(values))})", values)
        for name, value in saved["pragmas"].items():
            connection.execute(f"PRAGMA {name} = {value}")
        connection.commit()


def list_names(lab: WorkerLab) -> dict[str, str]:
    """Return what differs from one place to another, keyed by its name in a sample."""
    base = lab.repo.git("rev-parse", "main").strip()
    return {"<repo>": lab.root, "<base>": base, "<model>": lab.server.url}


if __name__ == "__main__":
    anyio.run(main)
