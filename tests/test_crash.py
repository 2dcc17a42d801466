"""A crash at every persisted transition, and the same answer after resuming.

The run has a router and a chain among its advisors, and hands off its answer. A local model server
answers for all agents and counts calls: a call that was recorded before the crash is never repeated.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podium import Agent, App, Result, Settings
from podium.core.journal_rows import find_chain_break
from podium.store.fault_injection import EXIT_CODE, refuse_after
from podium.store.reader import StoreReader
from podium.testing import ModelServer, Move, calls, format_script, read_entries
from podium.values.agent import Advisors
from podium.values.event import CallFailed, ModelReplied, RunEnded, TurnEnded
from podium.views.run_state.tree import RunView

from .studio import expire_leases

ANSWER = "filed under 7"


def make_script_prompt(*moves: Any) -> str:
    return f"You are played.\n{format_script(*moves)}"


def routes_to(agent: str) -> Move:
    return calls("route_to", agent=agent, reason="it fits")


def team() -> list[Agent]:
    """Make a lead with a handoff and advisors: one is a router that chooses wrongly at first, another a chain."""
    return [
        Agent(
            name="lead",
            prompt=make_script_prompt("decided"),
            advisors=Advisors(agents=("desk", "chain")),
            handoff="clerk",
        ),
        Agent(name="desk", prompt=make_script_prompt(routes_to("void"), routes_to("tax")), router=True, agents=["tax"]),
        Agent(name="tax", prompt=make_script_prompt("no tax")),
        Agent(
            name="chain",
            prompt=make_script_prompt({"says": "draft", "fails": {"status": 500, "times": 1, "retry_after": 0}}),
            handoff="senior",
        ),
        Agent(name="senior", prompt=make_script_prompt("final opinion")),
        Agent(name="clerk", prompt=make_script_prompt(ANSWER)),
    ]


def settings(home: Path, url: str) -> Settings:
    return Settings.load({}, home=home, model="openai:m", base_url=url)


def finished_calls(path: Path, run: str) -> set[str]:
    """Return the keys of the model calls that are on the timeline."""
    return {
        f"{run}/{entry.key}"
        for entry in read_entries(path, run)
        if entry.key and isinstance(entry.event, ModelReplied | CallFailed)
    }


async def run_with_fault(server: ModelServer, home: Path, number: int) -> Result:
    fault = refuse_after(number)
    async with App(settings(home, server.url), environ={}, fault=fault) as app:
        lead, *others = team()
        return await app.run(lead, "May we sell it?", agents=others)


async def resume_run(server: ModelServer, home: Path, run: str) -> Result:
    async with App(settings(home, server.url), environ={}) as app, app.resume(run) as live:
        return await live.result()


async def test_a_run_that_dies_at_any_entry_ends_the_same_and_repeats_no_finished_call(
    server: ModelServer, tmp_path: Path
) -> None:
    number, undisturbed = 0, None
    while undisturbed is None:
        number += 1
        home = tmp_path / str(number)
        first = await run_with_fault(server, home, number)
        if first.outcome != "interrupted":
            undisturbed = first
            break
        store = home / "podium.db"
        before = finished_calls(store, first.run_id)
        made = {key: server.count(key) for key in before}
        expire_leases(store)
        second = await resume_run(server, home, first.run_id)

        assert (second.outcome, second.text) == ("succeeded", ANSWER), f"after dying at entry {number}"
        assert {key: server.count(key) for key in before} == made, f"a finished call was repeated after entry {number}"
        check_timeline(store, first.run_id)

    assert undisturbed.text == ANSWER
    assert number > 40


def check_timeline(store: Path, run: str) -> None:
    with StoreReader(store) as reader:
        rows = reader.read_rows(run)
        entries = reader.read_entries(run)
    assert find_chain_break(rows) is None
    keys = Counter(entry.key for entry in entries if entry.key)
    assert [key for key, count in keys.items() if count > 1] == []
    assert isinstance(entries[-1].event, RunEnded)
    assert all(entry.event.failure is None for entry in entries if isinstance(entry.event, TurnEnded))


async def test_dying_again_and_again_still_comes_to_the_same_answer(server: ModelServer, tmp_path: Path) -> None:
    first = await run_with_fault(server, tmp_path, 5)
    store, result, deaths = tmp_path / "podium.db", first, 1

    while result.outcome == "interrupted":
        before = finished_calls(store, first.run_id)
        made = {key: server.count(key) for key in before}
        expire_leases(store)
        fault = refuse_after(4)
        async with (
            App(settings(tmp_path, server.url), environ={}, fault=fault) as app,
            app.resume(first.run_id) as live,
        ):
            result = await live.result()
        assert {key: server.count(key) for key in before} == made
        deaths += 1
        assert deaths < 60

    assert result.text == ANSWER
    check_timeline(store, first.run_id)


# The same with real processes


PROGRAM = """
import sys
import anyio
from pathlib import Path
from podium import App
from tests.test_crash import settings, team

async def main(home, url, run):
    async with App(settings(Path(home), url)) as app:
        if run:
            async with app.resume(run) as live:
                result = await live.result()
        else:
            lead, *others = team()
            result = await app.run(lead, "May we sell it?", agents=others)
    print(result.outcome, result.text)

anyio.run(main, *sys.argv[1:])
"""


def start_process(home: Path, url: str, run: str = "", **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(home), url, run],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
        env={**os.environ, **environ},
    )


class LoggedServer:
    """The model server as a separate process, with a log that outlives the processes that call it."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "calls.jsonl"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "podium.testing.model_server", "--latency", "0.01", "--log", str(self.log)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().split()[-1]

    def counts(self) -> Counter[str]:
        # The last line may still be incomplete.
        whole, _, _ = self.log.read_text().rpartition("\n") if self.log.exists() else ("", "", "")
        return Counter(json.loads(line)["key"] for line in whole.splitlines())

    def close(self) -> None:
        self._process.terminate()
        self._process.communicate()


@pytest.fixture
def logged_server(tmp_path: Path) -> Iterator[LoggedServer]:
    server = LoggedServer(tmp_path)
    yield server
    server.close()


def find_run_id(home: Path) -> str:
    with StoreReader(home / "podium.db") as reader:
        return reader.list_runs()[0].id


def has_ended(home: Path) -> bool:
    with StoreReader(home / "podium.db") as reader:
        return isinstance(reader.list_runs()[0].last.event, RunEnded)


def check_resume(server: LoggedServer, home: Path, dying: subprocess.Popen[str]) -> None:
    """Reap the process, resume in another one, and check the answer and the calls."""
    dying.wait()
    run = find_run_id(home)
    if has_ended(home):
        assert RunView.from_entries(read_entries(home / "podium.db", run)).build_result().text == ANSWER
        return
    before = finished_calls(home / "podium.db", run)
    made = server.counts()

    out, err = start_process(home, server.url, run).communicate(timeout=60)

    assert out.strip() == f"succeeded {ANSWER}", err
    assert {key: server.counts()[key] for key in before} == {key: made[key] for key in before}
    check_timeline(home / "podium.db", run)


def test_a_run_is_resumed_after_its_process_crashes_at_an_entry(logged_server: LoggedServer, tmp_path: Path) -> None:
    for number in (2, 23):
        home = tmp_path / str(number)
        dying = start_process(home, logged_server.url, PODIUM_FAULT=str(number))
        dying.communicate(timeout=60)
        assert dying.returncode == EXIT_CODE

        check_resume(logged_server, home, dying)


@pytest.mark.slow
def test_a_run_is_resumed_after_its_process_crashes_at_any_entry(logged_server: LoggedServer, tmp_path: Path) -> None:
    number = 0
    while True:
        number += 1
        home = tmp_path / str(number)
        dying = start_process(home, logged_server.url, PODIUM_FAULT=str(number))
        dying.communicate(timeout=60)
        if dying.returncode == 0:
            break
        check_resume(logged_server, home, dying)

    assert number > 40


def kill_and_resume(server: LoggedServer, home: Path, after_calls: int) -> None:
    """Kill the process as soon as the server has received some calls, then resume."""
    start = sum(server.counts().values())
    dying = start_process(home, server.url)
    while sum(server.counts().values()) < start + after_calls and dying.poll() is None:
        pass
    dying.send_signal(signal.SIGKILL)
    dying.communicate()
    check_resume(server, home, dying)


def test_a_run_is_resumed_after_its_process_is_killed_from_outside(logged_server: LoggedServer, tmp_path: Path) -> None:
    kill_and_resume(logged_server, tmp_path / "home", 4)


@pytest.mark.slow
def test_a_run_is_resumed_after_random_kills_from_outside(logged_server: LoggedServer, tmp_path: Path) -> None:
    for round in range(30):
        kill_and_resume(logged_server, tmp_path / str(round), random.randint(1, 9))
