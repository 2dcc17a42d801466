"""Forks: a new run shares every earlier model call of another one, and goes its own way from there."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, closing
from pathlib import Path

import pytest
from msgspec import structs

from podium import Agent, App, Mistake, Result, Run, Settings
from podium.core.engine import EngineSession, EngineSessionSpec, Finished, Piece, Text
from podium.core.journal_rows import find_chain_break
from podium.core.scope import Scope
from podium.runs.fork_position import HOW_DECIDED
from podium.store.reader import StoreReader
from podium.store.store_connection import open_connection
from podium.testing import ModelServer, read_entries
from podium.values.agent import Budget, Member, Team
from podium.values.errors import NoSuchRun, StoreCorrupt
from podium.values.event import (
    ActionRefused,
    BudgetChanged,
    Decision,
    DecisionCommitted,
    DecisionProposed,
    Entry,
    MessageReceived,
    ModelReplied,
    PermissionAnswered,
    PermissionAsked,
    RunEnded,
    RunStarted,
    SnapshotTaken,
    ToolAnswered,
)

from ..actors import ADA
from ..studio import Studio
from ..test_crash import ANSWER, make_script_prompt, team


class Lab:
    """Runs and forks of agents that a model server plays."""

    def __init__(self, server: ModelServer, home: Path) -> None:
        self.server = server
        self.settings = Settings.load({}, home=home, model="openai:m", base_url=server.url)

    def app(self) -> App:
        return App(self.settings, environ={})

    async def run(self, *agents: Agent) -> str:
        async with self.app() as app:
            return (await app.run(agents[0], "May we sell it?", agents=agents[1:])).run_id

    async def fork(self, run: str, at: int) -> tuple[str, Result]:
        async with self.app() as app:
            return await fork_and_finish(app, run, at)

    def entries(self, run: str) -> list[Entry]:
        return read_entries(self.settings.store, run)

    def calls(self, run: str, *, up_to: int) -> set[str]:
        """Return the keys of the model calls that a run had finished at an entry."""
        return {
            entry.key for entry in self.entries(run) if isinstance(entry.event, ModelReplied) and entry.seq <= up_to
        }

    def check_timeline(self, run: str) -> None:
        with StoreReader(self.settings.store) as reader:
            assert find_chain_break(reader.read_rows(run)) is None
        keys = Counter(entry.key for entry in self.entries(run) if entry.key)
        assert [key for key, count in keys.items() if count > 1] == []
        assert {entry.run for entry in self.entries(run)} == {run}


async def fork_and_finish(app: App, run: str, at: int) -> tuple[str, Result]:
    fork = await app.fork(run, at=str(at))
    async with app.resume(fork) as live:
        return fork, await live.result()


@pytest.fixture
def lab(server: ModelServer, tmp_path: Path) -> Lab:
    return Lab(server, tmp_path)


# Sharing


async def test_a_fork_at_any_entry_ends_the_same_and_makes_no_earlier_call_again(lab: Lab) -> None:
    source = await lab.run(*team())
    before = lab.entries(source)
    last = max(entry.seq for entry in before if entry.key != "lead" and not isinstance(entry.event, RunEnded))

    async with lab.app() as app:
        for at in range(1, last + 1):
            shared = lab.calls(source, up_to=at)
            fork, result = await fork_and_finish(app, source, at)

            assert (result.outcome, result.text) == ("succeeded", ANSWER), f"forked at entry {at}"
            assert [key for key in shared if lab.server.count(f"{fork}/{key}")] == [], f"forked at entry {at}"
            assert lab.calls(fork, up_to=1000) == lab.calls(source, up_to=1000)
            lab.check_timeline(fork)
    assert last > 40
    assert lab.entries(source) == before


async def test_a_fork_knows_what_it_was_forked_from(lab: Lab) -> None:
    source = await lab.run(*team())

    fork, _ = await lab.fork(source, 20)

    theirs, ours = lab.entries(source), lab.entries(fork)
    started = ours[0].event
    assert isinstance(started, RunStarted)
    assert (started.forked_from, started.shared) == (f"{source}@20", 19)
    assert [(entry.at, entry.key, entry.digest, entry.event) for entry in ours[1:20]] == [
        (entry.at, entry.key, entry.digest, entry.event) for entry in theirs[1:20]
    ]
    assert ours[0].at > theirs[-1].at


async def test_a_fork_can_be_forked(lab: Lab) -> None:
    source = await lab.run(*team())
    first, _ = await lab.fork(source, 20)
    shared = lab.calls(first, up_to=30)

    second, result = await lab.fork(first, 30)

    started = lab.entries(second)[0].event
    assert isinstance(started, RunStarted)
    assert (result.text, started.forked_from) == (ANSWER, f"{first}@30")
    assert [key for key in shared if lab.server.count(f"{second}/{key}")] == []
    lab.check_timeline(second)


async def test_the_time_before_a_fork_does_not_count_as_its_own(lab: Lab) -> None:
    source = await lab.run(Agent(name="lead", prompt=make_script_prompt("done")))

    async with lab.app() as app:
        fork = await app.fork(source, at="2")
        driver = await app.runs.claim(fork, by=ADA)
        seconds = driver.timeline.earlier_seconds
        await driver.run()

    assert 0 <= seconds < 1


async def test_a_fork_has_the_files_that_were_sent_with_a_message(studio: Studio, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("the secret word is plum")
    studio.agent("lead", says=[{"says": "first", "delay": 0.5}], handoff="clerk")
    studio.agent("clerk", says=["filed"])
    async with studio.app() as app:
        async with app.start(studio.agents["lead"], "go", agents=studio.agents.values()) as run:
            await run.send("see the note", to="clerk", attach=[tmp_path / "note.txt"])
            await run.result()
        at = next(entry.seq for entry in studio.entries(run.id) if isinstance(entry.event, MessageReceived))
        studio.calls.clear()

        fork = await app.fork(run.id, at=str(at))
        async with app.resume(fork) as resumed:
            await resumed.result()

    assert "the secret word is plum" in studio.heard("clerk")[0]


# Another way


async def test_a_new_request_is_a_message_to_the_first_agent(lab: Lab) -> None:
    source = await lab.run(*team())
    at = next(entry.seq for entry in lab.entries(source) if entry.key == "lead/turn#1/turn_started#1") - 1

    async with lab.app() as app:
        fork = await app.fork(source, at=str(at), request="Mention the price.", by="ada")
        async with app.resume(fork) as live:
            await live.result()

    [message] = [entry.event for entry in lab.entries(fork) if isinstance(entry.event, MessageReceived)]
    assert (message.to, message.text, message.by) == ("lead", "Mention the price.", "ada")
    heard = {call.headers["idempotency-key"]: call.call.messages[-1].text for call in lab.server.calls}
    assert "Mention the price." in heard[f"{fork}/lead/turn#1/call#1"]


async def test_a_new_request_reaches_every_member_of_a_collaborating_team(studio: Studio) -> None:
    members = (Member(agent="ann"), Member(agent="bob", name="builder"))
    studio.agent("ann")
    studio.agent("bob")
    studio.agent("lead", says=["done"], team=Team(mode="broadcast", members=members))
    source = await studio.run("lead", "go")
    collaborating = Team(mode="collaborate", members=members)
    studio.agent("lead", team=collaborating)
    async with studio.app() as app:
        entries = studio.entries(source)
        started = entries[0].event
        assert isinstance(started, RunStarted)
        agents = tuple(studio.agents["lead"] if one.name == "lead" else one for one in started.agents)
        lead = RunStarted(agent="lead", request=started.request, agents=agents)
        await app.runs.copy(lead, entries[1:2], id="team", source=source.run_id)

        fork = await app.fork("team", request="Hurry.")

    assert [one.to for one in studio.events(fork, MessageReceived)] == ["lead", "ann", "builder"]


async def test_a_budget_for_the_fork_counts_what_is_shared(lab: Lab) -> None:
    source = await lab.run(*team())
    entries = lab.entries(source)
    at = [entry.seq for entry in entries if isinstance(entry.event, ModelReplied)][-2]

    async with lab.app() as app:
        fork = await app.fork(source, at=str(at), budget={"turns": len(lab.calls(source, up_to=at))}, by="ada")
        async with app.resume(fork) as live:
            result = await live.result()

    assert result.outcome == "failed"
    assert "budget" in (result.error or "")
    [changed] = [entry for entry in lab.entries(fork) if isinstance(entry.event, BudgetChanged)]
    assert changed.key == "/budget_changed#1"


async def test_a_budget_that_cannot_be_enforced_is_refused(lab: Lab) -> None:
    source = await lab.run(*team())

    async with lab.app() as app:
        with pytest.raises(Mistake, match="price"):
            await app.fork(source, at="5", budget=Budget(usd=1))


class DecidingEngine:
    """An engine that decides between colours and takes a snapshot after that, as a team does."""

    name = "deciding"

    def open(self, spec: EngineSessionSpec) -> AbstractAsyncContextManager[EngineSession]:
        @asynccontextmanager
        async def open_session() -> AsyncIterator[EngineSession]:
            yield DecidingSession()

        return open_session()


class DecidingSession:
    is_restored = False

    def ask(self, prompt: str, turn: Scope) -> AbstractAsyncContextManager[AsyncIterator[Piece]]:
        return aclosing(self._decide(turn))

    async def _decide(self, turn: Scope) -> AsyncGenerator[Piece]:
        turn.record(SnapshotTaken(name="before"))
        place = turn.child("decision:colour", "which colour")
        place.record(DecisionProposed(id="colour", topic="Which colour?", options=("red", "blue")))
        made = place.find_outcome(DecisionCommitted) or place.record_outcome(
            DecisionCommitted(decision="colour", option="red", how="majority")
        )
        turn.record(SnapshotTaken(name="after"))
        yield Text(f"painted {made.option}")
        yield Finished()


@pytest.fixture
async def deciding(studio: Studio) -> AsyncIterator[tuple[App, str]]:
    """Open an App with a run in which a decision was made."""
    agent = studio.agent("lead", engine="deciding")
    async with studio.app(engines={"deciding": DecidingEngine()}) as app:
        result = await app.run(agent, "Paint it.")
        assert result.text == "painted red"
        yield app, result.run_id


async def finish(app: App, fork: str) -> Result:
    async with app.resume(fork) as live:
        return await live.result()


async def test_a_fork_can_make_one_decision_differently(deciding: tuple[App, str], studio: Studio) -> None:
    app, source = deciding

    fork = await app.fork(source, decide=("colour", "blue"), by="ada")

    assert (await finish(app, fork)).text == "painted blue"
    [made] = studio.events(fork, DecisionCommitted)
    assert (made.option, made.how, made.by) == ("blue", HOW_DECIDED, "ada")
    assert [one.name for one in studio.events(fork, SnapshotTaken)] == ["before", "after"]
    assert [one.option for one in studio.events(source, DecisionCommitted)] == ["red"]


async def test_a_fork_starts_at_the_snapshot_that_is_given(deciding: tuple[App, str], studio: Studio) -> None:
    app, source = deciding

    early, late = await app.fork(source, at="before"), await app.fork(source)

    assert [type(entry.event).__name__ for entry in studio.entries(early)][-1] == "SnapshotTaken"
    assert [one.name for one in studio.events(early, SnapshotTaken)] == ["before"]
    assert [one.name for one in studio.events(late, SnapshotTaken)] == ["before", "after"]
    assert (await finish(app, late)).text == "painted red"


async def test_a_decision_after_the_given_position_cannot_be_changed(deciding: tuple[App, str]) -> None:
    app, source = deciding

    with pytest.raises(Mistake, match=r"was proposed at entry .*, after the position 'before'; leave out --at"):
        await app.fork(source, at="before", decide=("colour", "blue"))


# Approvals


async def answer_requests(run: Run, decision: Decision, *, after: int = 0) -> list[str]:
    """Answer every request in this way, until the run ends, and return their ids."""
    asked: list[str] = []
    with run.entries(after) as entries:
        async for entry in entries:
            if isinstance(entry.event, PermissionAsked):
                asked.append(entry.event.id)
                await run.answer(entry.event.id, decision, by="me")
    return asked


async def test_what_was_approved_for_the_whole_run_is_asked_again(studio: Studio, tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    touch = {"calls": [{"name": "bash", "arguments": {"command": "touch marked"}}]}
    look = {"calls": [{"name": "glob", "arguments": {"pattern": "*"}}]}
    agent = studio.agent("lead", says=[touch, look, touch, "done"], tools=("Bash", "Glob"))
    studio.settings = structs.replace(studio.settings, sandbox=False)
    async with studio.app() as app:
        async with app.start(agent, "go", repo=tmp_path / "repo", is_attended=True) as run:
            asked = await answer_requests(run, "run")
        at = next(entry.seq for entry in studio.entries(run.id) if isinstance(entry.event, ToolAnswered))

        fork = await app.fork(run.id, at=str(at))
        shared = len(studio.entries(fork))
        async with app.resume(fork, is_attended=True) as resumed:
            asked_again = await answer_requests(resumed, "once", after=shared)

    assert len(asked) == 1
    assert len(asked_again) == 1
    assert asked_again != asked
    assert [one.decision for one in studio.events(fork, PermissionAnswered)] == ["once", "once"]


async def test_a_request_that_was_open_is_made_again_with_a_new_id(studio: Studio, tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    touch = {"calls": [{"name": "bash", "arguments": {"command": "touch marked"}}]}
    agent = studio.agent("lead", says=[touch, "done"], tools=("Bash",))
    studio.settings = structs.replace(studio.settings, sandbox=False)
    async with studio.app() as app:
        async with app.start(agent, "go", repo=tmp_path / "repo", is_attended=True) as run:
            asked = await answer_requests(run, "once")
        at = next(entry.seq for entry in studio.entries(run.id) if isinstance(entry.event, PermissionAsked))

        fork = await app.fork(run.id, at=str(at))
        async with app.resume(fork, is_attended=True) as resumed:
            asked_again = await answer_requests(resumed, "deny")

    assert len(asked_again) == 1
    assert asked_again != asked
    assert [one.tool for one in (event.action for event in studio.events(fork, ActionRefused))] == ["bash"]


# What cannot be forked


async def test_a_run_whose_first_agent_has_answered_has_nothing_left_to_do(lab: Lab) -> None:
    source = await lab.run(*team())

    async with lab.app() as app:
        with pytest.raises(Mistake, match=r"has nothing left to do at entry .*: lead had already answered; give an"):
            await app.fork(source)


async def test_a_run_that_was_altered_is_not_copied(lab: Lab) -> None:
    source = await lab.run(*team())
    with closing(open_connection(lab.settings.store, create=False)) as connection:
        connection.execute("DROP TRIGGER entry_stays")
        connection.execute("UPDATE entry SET line = CAST(replace(line, 'no tax', 'tax') AS BLOB)")

    async with lab.app() as app:
        with pytest.raises(StoreCorrupt, match="altered or damaged"):
            await app.fork(source, at="5")


async def test_an_unknown_run_is_refused(lab: Lab) -> None:
    await lab.run(*team())

    async with lab.app() as app:
        with pytest.raises(NoSuchRun, match="'nobody' not found"):
            await app.fork("nobody")
