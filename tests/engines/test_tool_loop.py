"""The tool loop: fallback models, conversations that grow too long, and messages from the person during a turn."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import anyio
from msgspec import structs

from podium import Agent, Result
from podium.core.engine import Text
from podium.engines.model.model_wire import Model, ModelCall, ReplyPart, add_zero_cost
from podium.engines.model.retry_policy import RetryPolicy
from podium.engines.model.tool_loop import ModelEngine
from podium.engines.script import ScriptedWire
from podium.store.fault_injection import refuse_after
from podium.values.agent import Budget, Permissions
from podium.values.errors import OutsideFailed
from podium.values.event import (
    CallFailed,
    ContextCompacted,
    MessagesDelivered,
    ModelReplied,
    Noticed,
    ToolAnswered,
    ToolCalled,
    TurnEnded,
    TurnStarted,
)

from ..studio import Studio, skip_sleep


def make_engine(*scripts: Any, windows: Sequence[int | None] = ()) -> tuple[ModelEngine, list[ScriptedWire]]:
    """Make an engine that falls back from the first script to the next, and return it with its adapters."""
    wires = [ScriptedWire(script) for script in scripts]
    models = [
        Model(wire=wire, name=f"m{place}", add_cost=add_zero_cost, window=lambda window=window: window)  # type: ignore[misc] # a default binds it
        for place, (wire, window) in enumerate(zip(wires, windows or [None] * len(wires), strict=True), 1)
    ]
    return ModelEngine(*models, name="m1", retry=RetryPolicy(max_retries=1, sleep=skip_sleep)), wires


class MissingModel:
    """A model that its provider does not have."""

    async def stream(self, call: ModelCall) -> AsyncGenerator[ReplyPart, None]:
        if call.model:
            raise OutsideFailed(f"no such model {call.model}", status=404, is_unknown_model=True)
        yield Text("")


def make_engine_without_first_model(*scripts: Any) -> tuple[ModelEngine, list[ScriptedWire]]:
    """Make an engine whose first model does not exist, and that falls back to the scripts."""
    engine, wires = make_engine([], *scripts)
    missing = Model(wire=MissingModel(), name="m1", add_cost=add_zero_cost)
    return ModelEngine(missing, *engine.models[1:], name="m1"), wires[1:]


async def run_agent(studio: Studio, model_engine: ModelEngine, request: str = "go", **keys: Any) -> Result:
    async with studio.app(engines={"mine": model_engine}) as app:
        return await app.run(Agent(name="lead", engine="mine", **keys), request)


# Fallback models


async def test_another_model_answers_where_the_first_fails(studio: Studio) -> None:
    model_engine, wires = make_engine([{"fails": {"status": 401}}], ["from the second"])

    result = await run_agent(studio, model_engine)

    assert result.text == "from the second"
    assert [event.model for event in studio.events(result, CallFailed, ModelReplied)] == ["m1", "m2"]
    assert len(wires[0].heard) == 1


async def test_a_model_is_tried_again_before_another_is(studio: Studio) -> None:
    model_engine, wires = make_engine([{"fails": {"status": 503}}], ["ok"])

    result = await run_agent(studio, model_engine)

    assert result.text == "ok"
    assert len(wires[0].heard) == 2


async def test_when_all_models_fail_the_error_of_the_last_is_reported(studio: Studio) -> None:
    model_engine, _ = make_engine([{"fails": {"status": 401}}], [{"fails": {"status": 403, "message": "no entry"}}])

    result = await run_agent(studio, model_engine)

    assert result.outcome == "failed"
    assert "no entry" in (result.error or "")


async def test_a_resumed_run_goes_on_with_the_model_it_had_fallen_back_to(studio: Studio) -> None:
    scripts = ([{"fails": {"status": 401}}], [{"calls": [{"name": "x"}]}, "done"])
    deaths = 0
    for number in range(2, 40):
        model_engine, _ = make_engine(*scripts)
        async with studio.app(engines={"mine": model_engine}, fault=refuse_after(number)) as app:
            first = await app.run(Agent(name="lead", engine="mine"), "go")
        if first.succeeded:
            break
        studio.expire_leases()
        again, _ = make_engine(*scripts)
        async with studio.app(engines={"mine": again}) as app, app.resume(first.run_id) as resumed:
            result = await resumed.result()
        assert result.text == "done"
        models = [event.model for event in studio.events(result, CallFailed, ModelReplied)]
        assert models == ["m1", "m2", "m1", "m2"], number
        deaths += 1
    assert deaths == 10


async def test_a_resumed_run_does_not_ask_again_for_a_model_that_the_provider_does_not_have(studio: Studio) -> None:
    moves = ([{"calls": [{"name": "x"}]}, {"calls": [{"name": "x"}]}, "done"],)
    deaths = 0
    for number in range(2, 60):
        model_engine, _ = make_engine_without_first_model(*moves)
        async with studio.app(engines={"mine": model_engine}, fault=refuse_after(number)) as app:
            first = await app.run(Agent(name="lead", engine="mine"), "go")
        if first.succeeded:
            break
        studio.expire_leases()
        again, _ = make_engine_without_first_model(*moves)
        async with studio.app(engines={"mine": again}) as app, app.resume(first.run_id) as resumed:
            result = await resumed.result()
        assert result.text == "done"
        models = [event.model for event in studio.events(result, CallFailed, ModelReplied)]
        assert models == ["m1", "m2", "m2", "m2"], number
        assert [event.text for event in studio.events(result, Noticed)] == ["lead uses m2 instead: no such model m1."]
        deaths += 1
    assert deaths > 10


# Conversations that grow too long

LONG = "word " * 9000


class OrderedWire:
    """A model that follows one script step after another, whatever the prompt."""

    def __init__(self, moves: Sequence[Any]) -> None:
        self._moves = list(moves)
        self.calls: list[ModelCall] = []

    def stream(self, call: ModelCall) -> AsyncGenerator[ReplyPart]:
        self.calls.append(call)
        return ScriptedWire([self._moves.pop(0)]).stream(ModelCall(agent="a", model="m", system="", messages=()))


async def test_a_conversation_is_compacted_before_it_is_too_long(studio: Studio) -> None:
    wire = OrderedWire([{"says": LONG, "calls": [{"name": "x"}]}, "a summary", "the answer"])
    model_engine = ModelEngine(Model(wire=wire, name="m", add_cost=add_zero_cost, window=lambda: 12_000), name="m")

    result = await run_agent(studio, model_engine, "keep this request")

    assert result.text == "the answer"
    [compacted] = studio.events(result, ContextCompacted)
    assert compacted.summary == "a summary"
    last = wire.calls[-1]
    assert "keep this request" in last.messages[0].text
    assert compacted.summary in last.messages[0].text
    assert LONG not in "".join(message.text for message in last.messages)


class ShortContextWire:
    """A model with a short context that reports when it is exceeded."""

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.calls: list[ModelCall] = []

    async def stream(self, call: ModelCall) -> AsyncGenerator[ReplyPart]:
        self.calls.append(call)
        if sum(len(message.text) for message in call.messages) > self.longest:
            raise OutsideFailed("m answered 400: prompt is too long", status=400, is_too_long=True)
        async for part in ScriptedWire("short enough").stream(ModelCall(agent="a", model="m", system="", messages=())):
            yield part


async def test_a_prompt_that_is_too_long_is_compacted_and_sent_again(studio: Studio) -> None:
    wire = ShortContextWire(20_000)
    model_engine = ModelEngine(
        Model(wire=wire, name="m", add_cost=add_zero_cost), name="m", retry=RetryPolicy(sleep=skip_sleep)
    )

    result = await run_agent(studio, model_engine, "x" * 30_000)

    assert result.text == "short enough"
    assert len(studio.events(result, CallFailed)) == 1
    assert len(studio.events(result, ContextCompacted)) == 1


async def test_a_request_that_stays_too_long_fails_with_the_models_error(studio: Studio) -> None:
    model_engine = ModelEngine(
        Model(wire=ShortContextWire(10), name="m", add_cost=add_zero_cost),
        name="m",
        retry=RetryPolicy(sleep=skip_sleep),
    )

    result = await run_agent(studio, model_engine, "x" * 100)

    assert result.error == "lead: m answered 400: prompt is too long"


# Messages from the person during a turn


async def test_a_message_reaches_an_agent_between_two_model_calls(studio: Studio) -> None:
    model_engine, wires = make_engine([{"calls": [{"name": "x"}], "delay": 0.05}, "ok"])
    async with studio.app(engines={"mine": model_engine}) as app:
        async with app.start(Agent(name="lead", engine="mine"), "go") as started:
            with started.entries() as entries:
                async for entry in entries:
                    if entry.event.__class__.__name__ == "TurnStarted":
                        await started.send("be brief")
            result = await started.result()

    assert result.text == "ok"
    kinds = [type(event) for event in studio.events(result, ToolCalled, MessagesDelivered, ModelReplied)]
    assert kinds == [ModelReplied, ToolCalled, MessagesDelivered, ModelReplied]
    assert "be brief" in wires[0].heard[-1].messages[-1].text


# Unusual replies


async def test_a_refusal_of_the_model_is_reported(studio: Studio) -> None:
    class Refusing:
        async def stream(self, call: ModelCall) -> AsyncGenerator[ReplyPart]:
            from podium.engines.model.model_wire import ReplyEnd

            yield ReplyEnd(stop="content_filter")

    model_engine = ModelEngine(Model(wire=Refusing(), name="m", add_cost=add_zero_cost), name="m")

    result = await run_agent(studio, model_engine)

    assert result.error == "lead: its model refused to answer"


# Slow tools, and turns that are watched


def make_lead(studio: Studio, *moves: Any, **keys: Any) -> Agent:
    return studio.agent("lead", says=[*moves, "done"], **keys)


async def test_a_turn_is_not_cut_while_its_tools_keep_to_their_own_limits(studio: Studio) -> None:
    turn_limits = structs.replace(studio.settings.patience, running_tool=0.1)
    studio.settings = structs.replace(studio.settings, patience=turn_limits)
    naps = {"calls": [{"name": "nap"}, {"name": "nap"}, {"name": "nap"}]}

    async def nap() -> str:
        await anyio.sleep(0.08)
        return "rested"

    lead = make_lead(studio, naps)
    async with studio.app() as app:
        result = await app.run(lead, "go", tools=[nap])

    assert result.text == "done", result.error


async def test_a_lead_is_not_late_while_its_sub_agent_works_or_waits_for_a_person(studio: Studio) -> None:
    turn_limits = structs.replace(studio.settings.patience, running_tool=0.1, used_tools=5.0)
    studio.settings = structs.replace(studio.settings, patience=turn_limits)
    studio.agent("helper", says=[{"says": "a word at a time", "pieces": 8, "pace": 0.05}])
    ask = {"calls": [{"name": "helper", "arguments": {"request": "go"}}]}
    lead = make_lead(studio, ask, agents=["helper"])

    result = await studio.run("lead", "go")

    assert result.text == "done", result.error
    assert lead.agents == ("helper",)


async def test_calls_of_one_reply_act_in_their_order_and_reading_waits_for_writing(
    studio: Studio, tmp_path: Path
) -> None:
    (tmp_path / "f.txt").write_text("old\n")
    studio.settings = structs.replace(studio.settings, permissions=Permissions(allow=("Write",)))
    both = {
        "calls": [
            {"name": "write_file", "arguments": {"path": "f.txt", "content": "new\n"}},
            {"name": "read_file", "arguments": {"path": "f.txt"}},
        ]
    }
    lead = make_lead(studio, both, tools=("Write", "Read"))
    async with studio.app() as app:
        result = await app.run(lead, "go", repo=tmp_path)

    assert "new" in studio.events(result, ToolAnswered)[1].text


async def test_a_budget_that_is_used_up_stops_the_calls_after_it(studio: Studio, tmp_path: Path) -> None:
    studio.settings = structs.replace(studio.settings, permissions=Permissions(allow=("Write",)))
    writes = {"calls": [{"name": "write_file", "arguments": {"path": f"{n}.txt", "content": "x"}} for n in range(4)]}

    lead = make_lead(studio, writes, tools=("Write",))
    async with studio.app() as app:
        result = await app.run(lead, "go", repo=tmp_path, budget=Budget(files_changed=1))

    assert "budget of 1 changed files" in (result.error or "")
    assert [path.name for path in sorted(tmp_path.glob("*.txt"))] == ["0.txt"]


async def test_an_answer_is_remembered_when_its_tool_is_gone(studio: Studio) -> None:
    def lookup() -> str:
        """Looks."""
        return "found"

    lead = make_lead(studio, {"calls": [{"name": "lookup"}]})
    async with studio.app(fault=refuse_after(8)) as app:
        first = await app.run(lead, "go", tools=[lookup])
    assert studio.events(first, ToolAnswered)
    studio.expire_leases()

    await studio.resume(first.run_id)

    assert studio.heard("lead")[-1] == "found"


async def test_two_tools_of_one_name_are_refused(studio: Studio, tmp_path: Path) -> None:
    studio.agent("grep", says=["x"])
    lead = make_lead(studio, agents=["grep"])
    async with studio.app() as app:
        result = await app.run(lead, "go", repo=tmp_path, agents=studio.agents.values())

    assert result.error == "lead: two of its tools are named grep; rename the agent or function"


async def test_a_message_sent_during_a_turn_is_repeated_when_the_session_is_revived(studio: Studio) -> None:
    model_engine, wires = make_engine([{"calls": [{"name": "x"}], "delay": 0.05}, "", "ok"])
    async with studio.app(engines={"mine": model_engine}) as app:
        async with app.start(Agent(name="lead", engine="mine"), "go") as started:
            with started.entries() as entries:
                async for entry in entries:
                    if isinstance(entry.event, TurnStarted) and entry.scope.endswith("turn#1"):
                        await started.send("be brief")

    revived = [call for call in wires[0].heard if len(call.messages) == 1][-1]
    assert "be brief" in revived.messages[0].text


async def test_an_agents_seconds_are_a_hard_stop(studio: Studio) -> None:
    studio.agent("lead", says=[{"silent": True}], budget=Budget(seconds=0.05))

    result = await studio.run("lead", "go")

    assert result.error == "lead: its budget of 0.05 s is used up"


async def test_a_store_that_fails_ends_the_run_though_another_call_waits_for_a_person(studio: Studio) -> None:
    asks = {"calls": [{"name": "ask_person", "arguments": {"question": "?"}}, {"name": "ask_person", "arguments": {}}]}
    lead = make_lead(studio, asks, tools=("ask_person",))
    for number in range(6, 14):
        with anyio.fail_after(40):
            async with studio.app(fault=refuse_after(number)) as app:
                async with app.start(lead, "go", is_attended=True) as run:
                    with anyio.move_on_after(0.2):
                        await run.result()


# Replies that are cut off


CUT = {"says": "The first half", "stop": "length"}


async def test_the_rest_of_a_reply_that_was_cut_off_is_asked_for_and_joined(studio: Studio) -> None:
    model_engine, [wire] = make_engine([CUT, " and the second."])

    result = await run_agent(studio, model_engine)

    assert result.succeeded
    assert result.text == "The first half and the second."
    assert "cut off" in wire.heard[1].messages[-1].text


async def test_an_answer_whose_rest_is_cut_off_too_says_so_and_is_no_success(studio: Studio) -> None:
    model_engine, [wire] = make_engine([CUT, {"says": " and more", "stop": "length"}, "never"])

    result = await run_agent(studio, model_engine)

    assert len(wire.heard) == 2
    assert result.outcome == "failed"
    assert result.text == "The first half and more\n\n[This answer was cut off at the token limit.]"
    assert result.error == (
        "lead: the answer was cut off at the model's token limit, even after the model was asked to continue"
    )
    [ended] = studio.events(result, TurnEnded)
    assert ended.text == result.text


async def test_a_reply_that_was_cut_off_by_a_budget_is_delivered_as_a_part_of_a_failed_run(studio: Studio) -> None:
    model_engine, _ = make_engine(["x" * 4_000, "never"])

    async with studio.app(engines={"mine": model_engine}) as app:
        result = await app.run(Agent(name="lead", engine="mine"), "go", budget=Budget(tokens=100))

    assert "the run's budget of 100 tokens is not enough for the next model call" in (result.error or "")
    [part] = result.parts
    assert part.text.startswith("xxx")
    assert result.usage.tokens <= 100


async def test_a_written_call_is_read_when_it_was_cut_off_in_between(studio: Studio) -> None:
    first = {"says": '{"name": "helper", "arguments": ', "stop": "length"}
    model_engine, _ = make_engine({"lead": [first, '{"request": "x"}}', "in words"], "helper": ["helped"]})

    async with studio.app(engines={"mine": model_engine}) as app:
        lead = Agent(name="lead", engine="mine", agents=("helper",))
        result = await app.run(lead, "go", agents=[Agent(name="helper", engine="mine")])

    assert result.text == "in words"
    [called] = studio.events(result, ToolCalled)
    assert (called.action.arguments, called.is_from_text) == ({"request": "x"}, True)
    assert studio.events(result, TurnEnded)[-1].text == "in words"


async def test_the_first_half_is_kept_when_the_call_for_the_rest_is_repeated(studio: Studio) -> None:
    model_engine, _ = make_engine([CUT, {"says": " and the second.", "half": 1}])

    result = await run_agent(studio, model_engine)

    assert result.text == "The first half and the second."


async def test_a_run_that_died_after_a_cut_off_reply_asks_for_the_rest(studio: Studio) -> None:
    model_engine, _ = make_engine([CUT, " and the second."])
    async with studio.app(engines={"mine": model_engine}, fault=refuse_after(4)) as app:
        first = await app.run(Agent(name="lead", engine="mine"), "go")
    assert len(studio.events(first, ModelReplied)) == 1
    studio.expire_leases()

    async with studio.app(engines={"mine": model_engine}) as app, app.resume(first.run_id) as run:
        result = await run.result()

    assert result.text == "The first half and the second."
    assert len(studio.events(result, ModelReplied)) == 2
