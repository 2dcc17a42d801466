"""Patterns from code: they are agents and modes of teams, in one run with everything else, and survive crashes."""

from __future__ import annotations

from pathlib import Path

import pytest

from podium import Agent, App, BadAgent, Mistake, Settings
from podium.patterns import Answer, Operation, Request, run_step
from podium.store.fault_injection import refuse_after
from podium.testing import ModelServer
from podium.values.event import ModelReplied, OperationStarted, StepEnded

from ..studio import Studio, expire_leases

pytestmark = pytest.mark.anyio


async def twice(op: Operation, request: Request) -> Answer:
    session = op.session()
    first = await session.ask(request.prompt())
    second = await session.ask(f"Improve: {first.text}")
    return Answer(text=second.text)


async def relay(op: Operation, request: Request) -> Answer:
    assert op.agent.team is not None
    text = request.text
    for member in op.agent.team.members:
        text = (await op.child(member.agent, "member").run(Request(text=text))).text
    return Answer(text=text)


def make_settings(home: Path, url: str) -> Settings:
    return Settings.load({}, home=home, model="openai:m", base_url=url)


async def test_a_pattern_is_an_agent_and_a_mode_in_one_run(studio: Studio) -> None:
    writer = studio.agent("writer", says=["draft", "better"], pattern=twice)
    closer = studio.agent("closer", says=["closed"])
    lead = studio.agent("lead", team={"mode": relay, "members": ["writer", "closer"]})
    editor = studio.agent("editor", says=["final"], advisors=["lead"])

    async with studio.app() as app:
        result = await app.run(editor, "go", agents=[writer, closer, lead])

    assert (result.text, result.error) == ("final", None)
    assert studio.heard("writer") == ["go", "Improve: draft"]
    assert studio.heard("closer") == ["better"]
    started = [one.agent for one in studio.events(result, OperationStarted)]
    assert started == ["editor", "lead", "writer", "closer"]
    stored = {one.name: one for one in studio.entries(result)[0].event.agents}  # type: ignore[union-attr]
    team = stored["lead"].team
    assert team is not None
    assert (stored["writer"].pattern, team.mode) == ("twice", "relay")


async def test_a_killed_run_goes_on_with_its_pattern_at_every_entry(tmp_path: Path) -> None:
    effects = tmp_path / "effects.txt"

    async def careful(op: Operation, request: Request) -> Answer:
        async def act() -> dict[str, int]:
            effects.write_text(effects.read_text() + "x")
            return {"number": len(effects.read_text())}

        found = await run_step(op, "count", act)
        reply = await op.session().ask(f"{request.text} {found['number']}")
        return Answer(text=reply.text)

    agent = Agent(name="hand", pattern=careful)
    async with ModelServer(["one", "two"]) as server:
        home = tmp_path / "whole"
        effects.write_text("")
        async with App(make_settings(home, server.url), environ={"OPENAI_API_KEY": "k"}) as app:
            whole = await app.run(agent, "go")
        assert whole.text == "one"
        for number in range(2, 9):
            home = tmp_path / str(number)
            effects.write_text("")
            settings = make_settings(home, server.url)
            async with App(settings, environ={"OPENAI_API_KEY": "k"}, fault=refuse_after(number)) as app:
                killed = await app.run(agent, "go")
            if killed.succeeded:
                break
            expire_leases(settings.store)
            async with App(settings, environ={"OPENAI_API_KEY": "k"}) as app:
                with pytest.raises(Mistake, match="'careful', which does not exist here"):
                    async with app.resume(killed.run_id):
                        pass
                async with app.resume(killed.run_id, patterns=[careful]) as resumed:
                    result = await resumed.result()
            assert result.text == "one"
            studio = Studio(home)
            assert len(studio.events(killed.run_id, StepEnded)) == 1
            assert len(studio.events(killed.run_id, ModelReplied)) == 1
            recorded_first = number >= 4
            assert effects.read_text() == "x" or not recorded_first


async def test_an_error_in_a_pattern_is_a_failure_of_its_agent(studio: Studio) -> None:
    async def breaks(op: Operation, request: Request) -> Answer:
        raise ValueError("no such thing")

    async def forgets(op: Operation, request: Request) -> None:
        return None

    for pattern, message in ((breaks, "its pattern breaks failed: ValueError: no such thing"), (forgets, "NoneType")):
        agent = studio.agent("hand", pattern=pattern)
        async with studio.app() as app:
            result = await app.run(agent, "go")
        assert result.outcome == "failed"
        assert message in (result.error or "")


async def test_what_cannot_be_a_pattern_is_refused_before_the_run(studio: Studio) -> None:
    studio.agent("other")
    wrong = [
        studio.agent("a", pattern="unknown"),
        studio.agent("b", pattern=twice, team={"mode": "broadcast", "members": ["other"]}),
        studio.agent("c", pattern=twice, router=True, agents=["other"]),
        studio.agent("d", pattern=lambda op, request: None),
    ]
    async with studio.app() as app:
        for agent in wrong:
            with pytest.raises((Mistake, BadAgent)):
                await app.run(agent, "go", agents=[studio.agents["other"]])
