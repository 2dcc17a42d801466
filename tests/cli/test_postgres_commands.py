"""The command line on a store in PostgreSQL: the same commands, and only PODIUM_STORE differs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from podium.store.fault_injection import EXIT_CODE
from podium.store.postgres.connection import close_idle_connections
from podium.store.reader import StoreReader
from podium.testing.postgres_cluster import PostgresCluster
from podium.values.event import RunStarted
from podium.values.store_address import make_postgres_address

from ..workers.worker_lab import WorkerLab, bash, make_scripted_agent, open_worker_lab, write
from .conftest import Desk
from .test_terminal import Terminal


@pytest.fixture
async def lab(postgres_cluster: PostgresCluster, postgres_url: str) -> AsyncIterator[WorkerLab]:
    async with open_worker_lab(partial(WorkerLab, store_url=f"{postgres_url}?application_name=hidden-word")) as lab:
        yield lab


async def call_podium(lab: WorkerLab, *arguments: str, code: int = 0, **variables: str) -> str:
    """Return the output of a command, which must end with this code."""
    said = await lab.run_podium(*arguments, **variables)
    assert said.returncode == code, (said.stdout, said.stderr)
    return said.stdout


async def load_json(lab: WorkerLab, *arguments: str) -> Any:
    return json.loads(await call_podium(lab, *arguments, "--json"))


async def test_a_run_asks_waits_is_answered_and_goes_on(lab: WorkerLab) -> None:
    lab.write_agent(make_scripted_agent(bash("echo asked > made.txt"), "done"))
    await call_podium(lab, "run", "hand", "make it", "--park", code=3)
    [run] = [one["id"] for one in (await load_json(lab, "ps"))["runs"]]

    [request] = (await load_json(lab, "approvals"))["waiting"]
    await call_podium(lab, "approve", request["id"])
    answer = await call_podium(lab, "resume", run)

    assert answer.strip() == "done"
    assert (lab.repo.path / "made.txt").read_text() == "asked\n"
    assert "is intact" in await call_podium(lab, "verify", run)
    assert "allowed" in await call_podium(lab, "show", run)


async def test_a_run_that_died_is_resumed_without_repeating_a_call(lab: WorkerLab) -> None:
    lab.write_agent(make_scripted_agent(write("one.txt"), write("two.txt"), "done"))
    options = ("--permissions", "accept-edits")
    await call_podium(lab, "run", "hand", "go", *options, code=EXIT_CODE, PODIUM_FAULT="9")
    [run] = [one["id"] for one in (await load_json(lab, "ps"))["runs"]]

    answer = await call_podium(lab, "resume", run)

    assert answer.strip() == "done"
    assert "is intact" in await call_podium(lab, "verify", run)
    assert len(lab.server.calls) == 3


async def test_a_worker_is_delegated_to_and_merged(lab: WorkerLab) -> None:
    lab.write_agent(make_scripted_agent(write("feature.txt"), "done"))
    lab.write_settings("permissions: {allow: [Write, Edit, Bash]}")
    run = (await call_podium(lab, "delegate", "feat/x", "add it", "--agent", "hand")).strip()

    lines = await call_podium(lab, "logs", "-f", run)
    await call_podium(lab, "merge", "feat/x", "--yes")

    assert "succeeded" in lines.splitlines()[-1]
    assert (lab.repo.path / "feature.txt").exists()
    [worker] = (await load_json(lab, "workers"))["workers"]
    assert worker["branch"] == "feat/x"


def test_a_chat_goes_on_from_line_to_line(desk: Desk, postgres_url: str) -> None:
    desk.write_agent("poet", "a poem about rain", "a shorter poem")
    terminal = Terminal(desk, "chat", "poet", PODIUM_STORE=postgres_url)

    terminal.wait_for("poet>")
    for line, answer in (("write a poem", "a poem about rain"), ("shorter", "a shorter poem")):
        terminal.process.send(f"{line}\r")
        terminal.wait_for(answer)
    terminal.process.sendcontrol("d")

    assert terminal.wait_exit() == 0
    with StoreReader(make_postgres_address(postgres_url, desk.home)) as reader:
        started = [run.first.event for run in reader.list_runs()]
    assert {one.request.text for one in started if isinstance(one, RunStarted)} == {"write a poem", "shorter"}
    close_idle_connections()
