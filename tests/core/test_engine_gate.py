"""An engine that acts itself: the same rules and people decide about its actions, and they are on record."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import structs

from podium import Result, Run
from podium.core.engine import EngineAction, EngineSessionSpec, Finished, Piece, Text
from podium.core.scope import Scope
from podium.store.fault_injection import refuse_after
from podium.values.agent import Permissions
from podium.values.event import ActionBegan, ActionRefused, PermissionAnswered, PermissionAsked

from ..studio import Studio


class Doer:
    """An engine that appends a line to `a.txt` if it is permitted to, and replies with what happened."""

    name = "doer"
    is_restored = False

    def __init__(self, *, path: str = "a.txt", asks: bool = True) -> None:
        self.path = path
        self.asks = asks

    @asynccontextmanager
    async def open(self, spec: EngineSessionSpec) -> AsyncIterator[Doer]:
        self.spec = spec
        yield self

    @asynccontextmanager
    async def ask(self, prompt: str, turn: Scope) -> AsyncIterator[AsyncIterator[Piece]]:
        async def act() -> AsyncIterator[Piece]:
            gate, place = self.spec.gate, turn.child("tool:append#1")
            assert gate is not None
            wanted = EngineAction(
                tool="write_file",
                arguments={"path": self.path, "content": "x\n"},
                outputs={self.path: ""},
                shown="+x",
                agent_reason="It is needed.",
            )
            if not self.asks:
                gate.record_unrequested(place, wanted)
                yield Text("done unasked")
            elif reason := await gate.permit(place, wanted):
                yield Text(f"refused: {reason}")
            else:
                with (Path(gate.checkouts[0]) / self.path).open("a") as file:
                    file.write("x\n")
                yield Text("done")
            yield Finished()

        yield act()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / "repo").mkdir()
    return tmp_path / "repo"


Answer = Callable[[Run, PermissionAsked], Awaitable[object]]


async def run_doer(studio: Studio, repo: Path, doer: Doer, answer: Answer | None = None) -> Result:
    agent = studio.agent("worker", engine="doer")
    async with studio.app(engines={"doer": doer}) as app:
        if answer is None:
            return await app.run(agent, "go", repo=repo)
        async with app.start(agent, "go", repo=repo, is_attended=True) as run:
            with run.entries() as entries:
                async for entry in entries:
                    if isinstance(entry.event, PermissionAsked):
                        await answer(run, entry.event)
            return await run.result()


def set_rules(studio: Studio, **rules: Sequence[str]) -> None:
    permissions = Permissions(**{kind: tuple(texts) for kind, texts in rules.items()})
    studio.settings = structs.replace(studio.settings, permissions=permissions)


async def test_a_rule_allows_it_and_is_recorded(studio: Studio, repo: Path) -> None:
    set_rules(studio, allow=["Write(/a.txt)"])

    result = await run_doer(studio, repo, Doer())

    assert result.text == "done"
    assert (repo / "a.txt").read_text() == "x\n"
    [began] = studio.events(result, ActionBegan)
    assert (began.allowed_by, began.action.tool, began.action.directory) == ("Write(/a.txt)", "write_file", str(repo))


async def test_a_rule_denies_it(studio: Studio, repo: Path) -> None:
    set_rules(studio, allow=["Write"], deny=["Write(/a.txt)"])

    result = await run_doer(studio, repo, Doer())

    assert result.text == "refused: Write(/a.txt) denies it"
    assert not (repo / "a.txt").exists()
    assert [event.reason for event in studio.events(result, ActionRefused)] == ["Write(/a.txt) denies it"]


async def test_a_person_sees_what_it_would_do_and_allows_it(studio: Studio, repo: Path) -> None:
    async def allow(run: Run, asked: PermissionAsked) -> None:
        await run.answer(asked.id, "once", by="ada")

    result = await run_doer(studio, repo, Doer(), allow)

    [asked] = studio.events(result, PermissionAsked)
    [began] = studio.events(result, ActionBegan)
    assert result.text == "done"
    assert (asked.shown, asked.agent_reason, asked.action.arguments) == (
        "+x",
        "It is needed.",
        {"path": "a.txt", "content": "x\n"},
    )
    assert began.action.id == asked.action.id
    assert began.allowed_by == "ada"


async def test_a_persons_reason_for_a_denial_reaches_the_engine(studio: Studio, repo: Path) -> None:
    async def deny(run: Run, asked: PermissionAsked) -> None:
        await run.answer(asked.id, "deny", by="ada", comment="not there")

    result = await run_doer(studio, repo, Doer(), deny)

    assert result.text == "refused: ada refused it: not there"
    assert not (repo / "a.txt").exists()
    assert studio.events(result, ActionBegan) == []


async def test_nobody_there_is_a_denial(studio: Studio, repo: Path) -> None:
    result = await run_doer(studio, repo, Doer())

    [answered] = studio.events(result, PermissionAnswered)
    assert (answered.decision, answered.channel) == ("deny", "unattended")
    assert result.text == f"refused: {answered.comment}"


async def test_a_protected_path_is_asked_for_in_spite_of_an_allow_rule(studio: Studio, repo: Path) -> None:
    set_rules(studio, allow=["Write"])

    result = await run_doer(studio, repo, Doer(path=".git/config"))

    [asked] = studio.events(result, PermissionAsked)
    assert asked.reason == ".git/config is protected; no rule can allow that"


async def test_an_action_without_a_request_is_recorded_as_such(studio: Studio, repo: Path) -> None:
    result = await run_doer(studio, repo, Doer(asks=False))

    [began] = studio.events(result, ActionBegan)
    assert began.allowed_by.startswith("nobody ")


async def test_an_answer_given_before_a_crash_still_counts_and_is_not_asked_for_again(
    studio: Studio, repo: Path
) -> None:
    agent, doer, run = studio.agent("worker", engine="doer"), Doer(), ""
    for crash_after in range(1, 20):
        async with studio.app(engines={"doer": doer}, fault=refuse_after(crash_after)) as app:
            if not run:
                result = await app.run(agent, "go", repo=repo)
            else:
                async with app.resume(run) as resumed:
                    result = await resumed.result()
        run = result.run_id
        if result.outcome != "interrupted":
            break
        studio.expire_leases()

    assert result.outcome == "succeeded"
    assert len(studio.events(run, PermissionAsked)) == 1
    assert len(studio.events(run, PermissionAnswered)) == 1
    assert len(studio.events(run, ActionRefused)) == 1
