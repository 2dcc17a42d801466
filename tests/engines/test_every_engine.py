"""What every engine must do, whatever model or program it uses. Add each new engine to the list here first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from anyio import create_task_group, sleep_forever

from podium import App, Settings
from podium.core.engine import Engine, EngineSessionSpec, Tool, ToolAnswer
from podium.core.engine_sessions import EngineSessionTasks
from podium.core.scope import Scope
from podium.core.session import Session
from podium.core.timeline import Timeline
from podium.engines.model.anthropic_wire import AnthropicWire
from podium.engines.model.model_wire import Model, add_zero_cost
from podium.engines.model.openai_wire import OpenAIWire
from podium.engines.model.retry_policy import RetryPolicy
from podium.engines.model.tool_loop import ModelEngine
from podium.engines.script import ScriptedWire
from podium.store.follower import Follower
from podium.store.reader import StoreReader
from podium.store.run_store import RunStore
from podium.testing import ModelServer, read_events
from podium.values.agent import Agent
from podium.values.errors import AgentFailed
from podium.values.event import CallCut, CallFailed, ModelReplied, TextStreamed, ToolAnswered, ToolUse
from podium.values.usage import TurnLimits

from ..studio import skip_sleep

RETRY = RetryPolicy(max_retries=2, sleep=skip_sleep)
WIRES: dict[str, type[OpenAIWire | AnthropicWire]] = {"openai": OpenAIWire, "anthropic": AnthropicWire}


class EngineLab:
    """One engine that follows a script, a store, and the sessions that use both."""

    def __init__(self, kind: str, store: Path) -> None:
        self.kind = kind
        self.store = store
        self.tool_calls: list[ToolUse] = []
        self.tool_timeout = 60.0
        self.notices: list[str] = []

    @asynccontextmanager
    async def engine(self, script: Sequence[Any]) -> AsyncIterator[Engine]:
        if self.kind == "scripted":
            yield ModelEngine(Model(wire=ScriptedWire(script), add_cost=add_zero_cost), name="scripted", retry=RETRY)
            return
        async with ModelServer(script) as server, aiohttp.ClientSession() as client:
            wire = WIRES[self.kind](lambda: client, server.url, "key")
            yield ModelEngine(Model(wire=wire, name="m"), name=f"{self.kind}:m", retry=RETRY)

    @asynccontextmanager
    async def session(self, script: Sequence[Any], *, turn_limits: TurnLimits | None = None) -> AsyncIterator[Session]:
        async with self.engine(script) as engine, RunStore(self.store) as store, create_task_group() as group:
            exists = self.has_run()
            lease = await store.claim_run("r") if exists else store.begin_run("r")
            timeline = Timeline("r", lease)
            timeline.load(await store.read_rows("r") if exists else [])
            scope = Scope(timeline, "worker", operation="worker", digest="d")
            spec = EngineSessionSpec(agent=Agent(name="worker"), system="You work.", tools=(self.tool(),), max_turns=4)
            session_tasks = EngineSessionTasks(group, on_notice=self.notices.append)
            session = Session(engine, spec, scope, session_tasks=session_tasks, turn_limits=turn_limits or TurnLimits())
            try:
                yield session
            finally:
                await session.aclose()
                store.release_run(lease)

    def tool(self) -> Tool:
        async def answer(call: ToolUse, scope: Scope) -> ToolAnswer:
            self.tool_calls.append(call)
            if not call.arguments.get("numbers"):
                await sleep_forever()
            return ToolAnswer(text=f"added up to {sum(call.arguments.get('numbers', []))}")

        numbers = {"type": "array", "items": {"type": "integer"}}
        parameters = {"type": "object", "properties": {"numbers": numbers}, "required": ["numbers"]}
        return Tool(
            name="add", description="Adds numbers up.", parameters=parameters, answer=answer, timeout=self.tool_timeout
        )

    def has_run(self) -> bool:
        if not self.store.exists():
            return False
        with StoreReader(self.store) as reader:
            return bool(reader.read_rows("r"))

    async def wait_for(self, kind: type) -> None:
        """Wait until there is an event of this kind."""
        with Follower(self.store, "r") as entries:
            async for entry in entries:
                if isinstance(entry.event, kind):
                    return

    def events(self, *kinds: type) -> list[Any]:
        return read_events(self.store, "r", *kinds)


@pytest.fixture(params=["scripted", *WIRES])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> EngineLab:
    return EngineLab(request.param, tmp_path / "s.db")


ADD = {"calls": [{"name": "add", "arguments": {"numbers": [1, 2]}}]}


async def test_it_streams(lab: EngineLab) -> None:
    script = [{"says": "one two three four", "pieces": 4, "pace": 0.15}]

    async with lab.session(script) as session:
        reply = await session.ask("count")

    assert reply.text == "one two three four"
    streamed = [event.text for event in lab.events(TextStreamed)]
    assert streamed
    assert "one two three four".startswith("".join(streamed))


async def test_it_calls_tools_and_answers_with_what_they_said(lab: EngineLab) -> None:
    async with lab.session([ADD, "it is three"]) as session:
        reply = await session.ask("add 1 and 2")

    assert reply.text == "it is three"
    assert [(call.name, call.arguments) for call in lab.tool_calls] == [("add", {"numbers": [1, 2]})]
    assert [event.text for event in lab.events(ToolAnswered)] == ["added up to 3"]


async def test_it_makes_several_calls_at_once_and_answers_them_in_order(lab: EngineLab) -> None:
    calls = [{"name": "add", "arguments": {"numbers": [number]}} for number in (5, 6, 7)]

    async with lab.session([{"calls": calls}, "done"]) as session:
        reply = await session.ask("add")

    assert reply.text == "done"
    assert sorted(event.text for event in lab.events(ToolAnswered)) == [
        "added up to 5",
        "added up to 6",
        "added up to 7",
    ]


async def test_an_unknown_tool_and_unreadable_arguments_are_answered_with_what_is_wrong(lab: EngineLab) -> None:
    unknown = {"calls": [{"name": "subtract", "arguments": {}}]}
    unreadable = {**ADD, "garbled": True}

    async with lab.session([unknown, unreadable, "I see"]) as session:
        reply = await session.ask("try")

    assert reply.text == "I see"
    assert lab.tool_calls == []
    assert [event.text for event in lab.events(ToolAnswered)] == [
        "Tool 'subtract' not found; available: add.",
        "The arguments for add are not a JSON object.",
    ]


async def test_a_tool_that_takes_too_long_is_stopped_and_the_model_is_told(lab: EngineLab) -> None:
    lab.tool_timeout = 0.05
    forever = {"calls": [{"name": "add", "arguments": {"numbers": []}}]}

    async with lab.session([forever, "never mind"]) as session:
        reply = await session.ask("add")

    assert reply.text == "never mind"
    [answered] = lab.events(ToolAnswered)
    assert (answered.text, answered.is_error, answered.is_timed_out) == ("add was stopped after 0.05 s.", True, True)


async def test_a_model_that_only_calls_tools_reaches_its_limit(lab: EngineLab) -> None:
    async with lab.session([ADD, ADD, ADD, ADD, ADD]) as session:
        with pytest.raises(AgentFailed, match="no answer after 4 model calls"):
            await session.ask("add for ever")


async def test_it_can_be_cancelled_and_what_it_said_is_kept(lab: EngineLab) -> None:
    script = [{"says": "one two three", "pieces": 3, "pace": 0.3}]

    async with lab.session(script) as session, create_task_group() as group:
        group.start_soon(session.ask, "count")
        await lab.wait_for(TextStreamed)
        group.cancel_scope.cancel()

    [cut] = lab.events(CallCut)
    assert cut.text.startswith("one")
    assert cut.text != "one two three"
    assert cut.usage.estimated == 1


async def test_a_transient_failure_is_retried(lab: EngineLab) -> None:
    script = [{"says": "at last", "fails": {"status": 429, "times": 2, "retry_after": 0}}]

    async with lab.session(script) as session:
        reply = await session.ask("hi")

    assert reply.text == "at last"
    assert len(lab.events(CallFailed)) == 2
    assert len(lab.events(ModelReplied)) == 1


async def test_retries_are_limited(lab: EngineLab) -> None:
    async with lab.session([{"fails": {"status": 503, "message": "overloaded"}}]) as session:
        with pytest.raises(AgentFailed, match="overloaded"):
            await session.ask("hi")

    waits = [event.wait is None for event in lab.events(CallFailed)]
    assert waits == [False, False, True]


async def test_a_permanent_failure_is_reported_at_once_with_the_providers_message(lab: EngineLab) -> None:
    async with lab.session([{"fails": {"status": 400, "message": "no such model"}}]) as session:
        with pytest.raises(AgentFailed, match="no such model"):
            await session.ask("hi")

    assert len(lab.events(CallFailed)) == 1


async def test_half_a_reply_is_not_an_answer(lab: EngineLab) -> None:
    async with lab.session([{"says": "the whole of it", "half": 1}]) as session:
        reply = await session.ask("hi")

    assert reply.text == "the whole of it"
    assert len(lab.events(CallFailed)) == 1


async def test_an_empty_reply_is_asked_for_once_more(lab: EngineLab) -> None:
    async with lab.session([""]) as session:
        with pytest.raises(AgentFailed, match="its reply was empty"):
            await session.ask("hi")

    assert len(lab.events(ModelReplied)) == 2


async def test_silence_ends_the_turn(lab: EngineLab) -> None:
    async with lab.session([{"silent": True}], turn_limits=TurnLimits(thinking=0.1)) as session:
        with pytest.raises(AgentFailed, match=r"timed out after 0\.1 s without output"):
            await session.ask("hi")


async def test_usage_is_recorded_for_each_call(lab: EngineLab) -> None:
    spent = {"input_tokens": 11, "output_tokens": 7, "cached_tokens": 4}

    async with lab.session([{**ADD, "usage": spent}, {"says": "done", "usage": spent}]) as session:
        await session.ask("hi")

    used = [event.usage for event in lab.events(ModelReplied)]
    assert [(usage.input_tokens, usage.output_tokens, usage.cached_tokens) for usage in used] == [(11, 7, 4)] * 2
    assert [usage.tool_calls for usage in used] == [1, 0]


async def test_a_restart_in_the_middle_of_a_turn_repeats_no_call(lab: EngineLab) -> None:
    async with lab.session([ADD, {"silent": True}]) as session, create_task_group() as group:
        group.start_soon(session.ask, "add")
        await lab.wait_for(ToolAnswered)
        group.cancel_scope.cancel()

    async with lab.session([{"fails": {"status": 400}}, "it is three"]) as session:
        reply = await session.ask("add")

    assert reply.text == "it is three"
    assert len(lab.events(ModelReplied)) == 2


async def test_a_restart_between_turns_gives_the_next_turn_the_whole_conversation(lab: EngineLab) -> None:
    async with lab.session([ADD, "it is three", "again three"]) as session:
        await session.ask("add")

    async with lab.session([{"fails": {"status": 400}}, {"fails": {"status": 400}}, "again three"]) as session:
        await session.ask("add")
        reply = await session.ask("again")

    assert reply.text == "again three"


async def test_a_broken_connection_costs_its_own_call_and_no_other(tmp_path: Path) -> None:
    scripts = {"broken": [{"says": "mended", "half": 1}], "fine": [{"says": "whole", "pieces": 5, "pace": 0.05}]}
    async with ModelServer(scripts) as server:
        settings = Settings.load({}, home=tmp_path, model="openai:fine", base_url=server.url)
        async with App(settings, environ={}) as app, create_task_group() as group:
            results: dict[str, list[str]] = {"broken": [], "fine": []}

            async def run_model(model: str) -> None:
                result = await app.run(Agent(name=model, prompt="You.", model=f"openai:{model}"), "hi")
                results[model].append(result.text)

            for model in ("fine", "broken", "fine"):
                group.start_soon(run_model, model)

    assert results == {"broken": ["mended"], "fine": ["whole", "whole"]}
    assert len(server.calls) == 4
