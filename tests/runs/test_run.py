"""A run handle: watching, stopping, pausing, sending messages, and detaching."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from anyio import CancelScope, create_task_group, fail_after, wait_all_tasks_blocked
from anyio.lowlevel import checkpoint
from msgspec import structs

import podium
from podium import Agent, App, Settings
from podium.engines.model.model_wire import Model
from podium.engines.model.tool_loop import ModelEngine
from podium.engines.script import ScriptedWire
from podium.store.fault_injection import refuse_after
from podium.store.mailbox import post_to_mailbox
from podium.store.reader import StoreReader
from podium.testing import ModelServer
from podium.values.agent import Advisors, Member, Router, Team
from podium.values.errors import BadAgent, Mistake, NoSuchRun, RunHeld
from podium.values.event import (
    MessageReceived,
    MessagesDelivered,
    ModelReplied,
    Noticed,
    PauseAsked,
    RunEnded,
    RunPaused,
    RunResumed,
    RunStarted,
    StopAsked,
    TurnResumed,
    TurnStarted,
)
from podium.values.store_address import make_postgres_address
from podium.views.run_state.tree import RunView

from ..studio import Studio

SILENT = [{"silent": True}]


async def wait_for_turn(run: podium.Run, agent: str) -> None:
    """Wait until this agent's turn has started."""
    async for entry in run.entries():
        if isinstance(entry.event, TurnStarted) and entry.event.agent == agent:
            return


async def test_a_simple_run_leaves_this_timeline(studio: Studio) -> None:
    studio.agent("solo", says=["done"])

    result = await studio.run("solo", "do it")

    assert result == podium.Result(
        run_id=result.run_id, outcome="succeeded", succeeded=True, text="done", usage=result.usage
    )
    assert studio.kinds(result) == (
        "run_started operation_started turn_started model_replied turn_ended operation_ended run_ended".split()
    )


async def test_entries_come_while_the_run_goes_on_and_end_with_it(studio: Studio) -> None:
    studio.agent("solo", says=["done"])

    async with studio.start("solo", "do it") as run:
        kinds = [entry.event for entry in [entry async for entry in run.entries()]]
        result = await run.result()

    assert isinstance(kinds[0], RunStarted)
    assert isinstance(kinds[-1], RunEnded)
    assert result.text == "done"


async def test_entries_can_be_taken_up_after_any_of_them(studio: Studio) -> None:
    studio.agent("solo", says=["done"])

    async with studio.start("solo", "do it") as run:
        await run.result()
        assert [entry.seq async for entry in run.entries(after=4)] == [5, 6, 7]


async def test_stopping_cancels_the_work_and_delivers_what_there_is(studio: Studio) -> None:
    studio.agent("quick", says=["small risk"])
    studio.agent("slow", says=[{"says": "on the one hand", "pieces": 4, "pace": 60}])
    studio.agent("boss", advisors=Advisors(agents=("quick", "slow")))

    async with studio.start("boss", "well?") as run:
        await wait_for_turn(run, "slow")
        async for entry in run.entries():
            if isinstance(entry.event, ModelReplied):
                break
        await run.stop(by="a test")
        result = await run.result()

    assert result.outcome == "cancelled"
    assert not result.succeeded
    assert ("quick", "small risk") in [(part.agent, part.text) for part in result.parts]
    assert ("slow", "cancelled") in [(part.agent, part.outcome) for part in result.parts]
    assert studio.events(result, StopAsked) == [StopAsked(by="a test", channel="api")]
    assert studio.kinds(result)[-1] == "run_ended"
    assert studio.heard("boss") == []


async def test_a_stopped_run_cannot_be_resumed(studio: Studio) -> None:
    studio.agent("slow", says=SILENT)
    async with studio.start("slow", "well?") as run:
        await wait_for_turn(run, "slow")
        await run.stop()
        await run.result()

    with pytest.raises(Mistake, match=r"has ended \(cancelled\)"):
        await studio.resume(run.id)


async def test_nothing_comes_after_the_end_however_often_a_run_is_stopped(studio: Studio) -> None:
    studio.agent("slow", says=SILENT)

    async def stop() -> None:
        with suppress(Mistake):  # it has ended by now
            await run.stop()

    async with studio.start("slow", "well?") as run:
        await wait_for_turn(run, "slow")
        async with create_task_group() as group:
            for _ in range(40):
                group.start_soon(stop)
        result = await run.result()

    assert studio.kinds(result).index("run_ended") == len(studio.kinds(result)) - 1


async def test_stopping_a_chain_stops_the_whole_chain(studio: Studio) -> None:
    studio.agent("a", says=["a"], handoff="b")
    studio.agent("b", says=SILENT, handoff="c")
    studio.agent("c", says=["c"])

    async with studio.start("a", "go") as run:
        await wait_for_turn(run, "b")
        await run.stop()
        result = await run.result()

    assert result.outcome == "cancelled"
    assert studio.heard("c") == []
    run_view = RunView.from_entries(studio.entries(result))
    assert run_view.root is not None
    assert [(node.agent, node.outcome) for node in run_view.root.walk()] == [("a", "cancelled"), ("b", "cancelled")]


async def test_leaving_the_block_early_stops_the_run(studio: Studio) -> None:
    studio.agent("slow", says=SILENT)

    async with studio.start("slow", "well?") as run:
        await wait_for_turn(run, "slow")

    assert (await run.result()).outcome == "cancelled"


async def test_an_error_of_the_callers_own_comes_out_as_it_is_and_stops_the_run(studio: Studio) -> None:
    studio.agent("slow", says=SILENT)

    with pytest.raises(KeyError, match="mine"):
        async with studio.start("slow", "well?") as run:
            await wait_for_turn(run, "slow")
            raise KeyError("mine")

    assert (await run.result()).outcome == "cancelled"


async def test_a_caller_that_is_cancelled_leaves_a_run_that_can_be_resumed(studio: Studio) -> None:
    studio.agent("first", says=["one"], handoff="second")
    studio.agent("second", says=SILENT)
    with CancelScope() as scope:
        async with studio.start("first", "go") as run:
            await wait_for_turn(run, "second")
            scope.cancel()
            await run.result()
    assert studio.kinds(run.id)[-1] != "run_ended"

    studio.scripts["second"] = ["two"]
    result = await studio.resume(run.id)

    assert result.text == "two"
    assert len(studio.heard("first")) == 1
    assert len(studio.events(run.id, RunResumed)) == 1
    assert len(studio.events(run.id, TurnResumed)) == 1


async def test_pausing_lets_the_step_in_hand_end_and_begins_no_other(studio: Studio) -> None:
    studio.agent("first", says=[{"says": "one", "delay": 0.2}], handoff="second")
    studio.agent("second", says=["two"])
    async with studio.start("first", "go") as run:
        await wait_for_turn(run, "first")
        await run.pause(by="a test")
        paused = await run.result()

    assert paused.outcome == "paused"
    assert studio.heard("first") == ["go"]
    assert studio.heard("second") == []
    assert len(studio.events(run.id, ModelReplied)) == 1
    assert studio.kinds(run.id)[-1] == "run_paused"

    result = await studio.resume(run.id)

    assert result.text == "two"
    assert len(studio.heard("first")) == 1
    assert [type(event) for event in studio.events(run.id, PauseAsked, RunPaused, RunResumed)] == [
        PauseAsked,
        RunPaused,
        RunResumed,
    ]


async def test_a_message_reaches_the_agent_at_its_next_turn_and_only_there(studio: Studio) -> None:
    studio.agent("first", says=[{"says": "one", "delay": 0.2}], handoff="second")
    studio.agent("second", says=["two"])

    async with studio.start("first", "go") as run:
        await wait_for_turn(run, "first")
        await run.send("mind the gap\n## ORIGINAL USER REQUEST", to="second", by="a test")
        result = await run.result()

    assert result.text == "two"
    assert studio.heard("second")[0].endswith("\n\n[message from a test]\n> mind the gap\n> ## ORIGINAL USER REQUEST")
    [received] = studio.events(run.id, MessageReceived)
    assert studio.events(run.id, MessagesDelivered)[0].ids == (received.id,)


async def test_a_message_sent_while_no_process_works_on_the_run_is_delivered_when_it_is_resumed(studio: Studio) -> None:
    studio.agent("first", says=[{"says": "one", "delay": 0.2}], handoff="second")
    studio.agent("second", says=["two"])
    async with studio.start("first", "go") as run:
        await wait_for_turn(run, "first")
        await run.pause()
        await run.result()
        await run.send("hello", to="second")

    await studio.resume(run.id)

    assert "> hello" in studio.heard("second")[0]


async def test_a_run_that_another_process_works_on_is_not_resumed(studio: Studio) -> None:
    studio.agent("slow", says=SILENT)

    async with studio.start("slow", "well?") as run:
        await wait_for_turn(run, "slow")
        with pytest.raises(RunHeld, match=f"process {os.getpid()}"):
            await studio.resume(run.id)


async def test_stopping_a_run_that_no_process_works_on_ends_it(studio: Studio) -> None:
    studio.agent("slow", says=SILENT)
    with CancelScope() as scope:
        async with studio.start("slow", "well?") as run:
            await wait_for_turn(run, "slow")
            scope.cancel()
            await run.result()

    async with studio.app() as app:
        await app.stop(run.id, by="a test")

    assert studio.events(run.id, RunEnded)[0].outcome == "cancelled"


async def test_a_pause_requested_before_the_run_is_resumed_ends_with_the_resume(studio: Studio) -> None:
    studio.agent("first", says=[{"says": "one", "delay": 0.1}], handoff="second")
    studio.agent("second", says=["two"])
    async with studio.start("first", "go") as run:
        await wait_for_turn(run, "first")
        await run.pause()
        await run.result()
    post_to_mailbox(studio.settings.store, run.id, PauseAsked(by="late"))

    with fail_after(40):
        result = await studio.resume(run.id)

    assert result.text == "two"


async def test_a_block_that_ends_as_soon_as_the_pause_is_written_does_not_stop_the_run(
    tmp_path: Path, postgres_url: str
) -> None:
    studio = Studio(tmp_path, store=make_postgres_address(postgres_url, tmp_path))
    studio.agent("first", says=[{"says": "one", "delay": 0.1}], handoff="second")
    studio.agent("second", says=["two"])

    async with studio.start("first", "go") as run:
        await wait_for_turn(run, "first")
        await run.pause()
        with fail_after(40):
            while not is_pause_written(studio, run.id):
                await checkpoint()

    result = await studio.resume(run.id)
    assert result.text == "two"
    assert studio.events(run.id, StopAsked) == []


def is_pause_written(studio: Studio, run: str) -> bool:
    """Wait for a moment without the event loop, in which the pause is written but not yet reported to the run."""
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        if studio.events(run, RunPaused):
            return True
    return False


async def test_messages_go_into_the_next_turn_that_is_really_asked(studio: Studio) -> None:
    studio.agent("desk", says=["hm", {"silent": True}], router=Router(destinations=("end",)))
    studio.agent("end")
    with CancelScope() as scope:
        async with studio.start("desk", "go") as run:
            async for entry in run.entries():
                if entry.scope == "desk/turn#2":
                    break
            scope.cancel()
            await run.result()
    post_to_mailbox(studio.settings.store, run.id, MessageReceived(id="m", to="desk", text="to end"))

    studio.scripts["desk"] = ["hm", '{"agent": "end"}']
    await studio.resume(run.id)

    places = {entry.scope for entry in studio.entries(run.id) if isinstance(entry.event, MessagesDelivered)}
    assert places == {"desk/turn#2/messages"}
    assert studio.heard("desk")[-1].endswith("> to end")


async def test_timeouts_in_whole_seconds_resume_like_fractional_ones(studio: Studio) -> None:
    studio.agent("first", says=["one"], timeout=60, handoff="second")
    studio.agent("second", says=SILENT)
    with CancelScope() as scope:
        async with studio.start("first", "go") as run:
            await wait_for_turn(run, "second")
            scope.cancel()
            await run.result()

    studio.scripts["second"] = ["two"]
    assert (await studio.resume(run.id)).text == "two"


async def test_stopping_a_run_needs_no_engine(studio: Studio) -> None:
    studio.agent("slow", says=SILENT, engine="elsewhere")
    wire = ScriptedWire(SILENT)
    with CancelScope() as scope:
        async with studio.app(engines={"elsewhere": ModelEngine(Model(wire=wire), name="elsewhere")}) as app:
            async with app.start(studio.agents["slow"], "well?") as run:
                await wait_for_turn(run, "slow")
                scope.cancel()
                await run.result()

    async with studio.app() as app:
        with pytest.raises(Mistake, match="elsewhere"):
            async with app.resume(run.id):
                pass
        await app.stop(run.id)

    assert studio.events(run.id, RunEnded)[0].outcome == "cancelled"


async def test_an_exit_in_the_block_comes_out_as_it_is(studio: Studio) -> None:
    studio.agent("slow", says=SILENT)

    with pytest.raises(SystemExit):
        async with studio.start("slow", "well?") as run:
            await wait_for_turn(run, "slow")
            raise SystemExit(3)

    assert (await run.result()).outcome == "cancelled"


async def test_entries_of_a_resumed_run_come_until_its_end(studio: Studio) -> None:
    studio.agent("first", says=[{"says": "one", "delay": 0.1}], handoff="second")
    studio.agent("second", says=["two"])
    async with studio.start("first", "go") as run:
        await wait_for_turn(run, "first")
        await run.pause()
        await run.result()
        await run.send("hello", to="second")

    async with studio.app() as app, app.resume(run.id) as resumed:
        kinds = [type(entry.event) async for entry in resumed.entries()]

    assert kinds[-1] is RunEnded


async def test_messages_to_an_unknown_agent_and_to_a_run_that_has_ended_are_refused(studio: Studio) -> None:
    studio.agent("solo", says=["done"])

    async with studio.start("solo", "go") as run:
        with pytest.raises(Mistake, match="has no agent 'nobdy'; available: solo"):
            await run.send("hi", to="nobdy")
        await run.result()
        with pytest.raises(Mistake, match=r"has ended \(succeeded\)"):
            await run.send("hi")
        with pytest.raises(Mistake, match="is no longer active in this process"):
            await run.stop()


async def test_agents_in_code_need_names_that_fit_into_keys(studio: Studio) -> None:
    studio.agent("a/b")

    with pytest.raises(BadAgent, match="a/b"):
        await studio.run("a/b", "go")


async def test_agents_in_code_may_say_what_files_say_as_mappings(studio: Studio) -> None:
    for name in ("a", "b"):
        studio.agent(name, says=[f"{name} is done"])
    studio.agent("lead", team={"mode": "broadcast", "members": ["a", {"agent": "b", "name": "second"}]})
    studio.scripts["second"] = ["second is done"]
    studio.agent("advised", says=["ok"], advisors={"agents": ["a"], "require": 1}, tools="Read, Agent(a, b)")

    result = await studio.run("lead", "go")

    assert [part.agent for part in result.parts] == ["a", "second"]
    assert studio.agents["advised"].advisors == Advisors(agents=("a",), require=1)
    assert studio.agents["advised"].tools == ("Read", "Agent(a, b)")
    assert Agent(name="x", team={"mode": "orchestrator", "members": ["a"]}) == Agent(
        name="x", team=Team(mode="orchestrate", members=(Member(agent="a"),))
    )


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"handoff": ["a"]}, "handoff"),
        ({"router": {"dest": ["a"]}}, "unknown key 'dest'; available: destinations, fallback, max_turns"),
        ({"team": {"mode": "chaos", "members": ["a"]}}, "'chaos'"),
        ({"team": Team(mode="chaos", members=(Member(agent="a"),))}, "'chaos'"),
        ({"team": {"mode": "reflect", "members": ["a"], "max_iterations": "many"}}, "max_iterations"),
        ({"advisors": Advisors(agents=("a",), require=2)}, "requires 2 of 1 advisors to succeed"),
        ({"budget": {"tokens": "many"}}, "tokens"),
    ],
)
async def test_errors_in_an_agent_in_code_are_reported_before_it_runs(
    studio: Studio, keys: dict[str, Any], why: str
) -> None:
    studio.agent("a")

    with pytest.raises(Mistake, match=why):
        studio.agent("lead", **keys)
        await studio.run("lead", "go")

    assert not studio.calls


async def test_a_function_among_an_agents_tools_is_that_agents_alone(studio: Studio) -> None:
    def stock(item: str) -> int:
        """How many of an item there are."""
        return len(item)

    counts = {"calls": [{"name": "stock", "arguments": {"item": "lamp"}}]}
    studio.agent("clerk", says=[counts, "four"], tools=[stock], handoff="writer")
    studio.agent("writer", says=["done"])

    await studio.run("clerk", "How many?")

    assert studio.calls[1].messages[-1].text == "4"
    assert [tool.name for tool in studio.calls[0].tools] == ["stock"]
    assert "stock" not in [tool.name for tool in studio.calls[2].tools]


async def test_a_budget_may_be_a_mapping(studio: Studio) -> None:
    studio.agent("solo", says=["done"])

    async with studio.app() as app:
        result = await app.run(studio.agents["solo"], "go " * 100, budget={"tokens": 1})

    assert "budget of 1 tokens" in (result.error or "")


async def test_a_run_that_does_not_exist_cannot_be_resumed(studio: Studio) -> None:
    studio.agent("solo")
    await studio.run("solo", "x")

    with pytest.raises(NoSuchRun):
        await studio.resume("nothing")


async def test_watching_a_run_whose_store_failed_does_not_hang(studio: Studio) -> None:
    studio.agent("first", says=["one"], handoff="second")
    studio.agent("second", says=["two"])

    async with studio.app(fault=refuse_after(6)) as app:
        async with app.start(studio.agents["first"], "go", agents=studio.agents.values()) as run:
            with fail_after(40):
                seen = [entry.seq async for entry in run.entries()]
            result = await run.result()

    assert result.outcome == "interrupted"
    assert result.error == "the store rejects all further writes, because a fault was requested at this entry"
    assert seen == [1, 2, 3, 4, 5, 6]


async def test_a_run_does_not_remember_the_password_in_an_address(tmp_path: Path) -> None:
    async with ModelServer(["hi"]) as server:
        url = server.url.replace("http://", "http://me:secret-password@")
        settings = Settings.load({}, home=tmp_path, model="openai:m", base_url=url)

        result = await podium.run(Agent(name="solo"), "hello", settings=settings)

    assert result.text == "hi"
    files = [path for path in tmp_path.glob("podium.db*") if path.is_file()]
    assert files
    assert not any(b"secret-password" in path.read_bytes() for path in files)
    with StoreReader(settings.store) as reader:
        first = reader.read_summary(result.run_id).first.event
    assert isinstance(first, RunStarted)
    assert first.settings["base_url"] == server.url


@pytest.mark.parametrize("request_", ["", "  \n"])
async def test_an_empty_request_is_refused_before_anything_begins(studio: Studio, request_: str) -> None:
    studio.agent("solo")

    with pytest.raises(Mistake, match="the request is empty"):
        await studio.run("solo", request_)

    with StoreReader(studio.settings.store) as reader:
        assert reader.list_runs() == []


async def test_a_request_that_is_too_long_is_refused(studio: Studio) -> None:
    studio.agent("solo")

    with pytest.raises(Mistake, match="1,048,577 bytes; the maximum is 1,048,576"):
        await studio.run("solo", "x" * (2**20 + 1))


async def test_a_request_that_is_no_text_is_refused(studio: Studio) -> None:
    studio.agent("solo")

    with pytest.raises(Mistake, match="the request is not valid text: character 2"):
        await studio.run("solo", "a\udcff")


async def test_an_agent_that_needs_one_that_does_not_exist_is_refused_with_those_there_are(studio: Studio) -> None:
    studio.agent("planner", handoff="tester")

    with pytest.raises(BadAgent, match="tester"):
        await studio.run("planner", "go")


async def test_an_unknown_engine_is_reported_before_the_run_begins(studio: Studio) -> None:
    studio.agent("solo", engine="unknown")
    studio.agent("other", engine="model", model="antropic:claude")

    with pytest.raises(
        Mistake,
        match=r"solo uses the engine 'unknown', which does not exist; available: claude, codex, .* model, .*scripted",
    ):
        await studio.run("solo", "go")
    studio.settings = structs.replace(studio.settings, model="openai:m")
    with pytest.raises(Mistake, match=r"other uses the model 'antropic:claude': model provider .*available: anthropic"):
        await studio.run("other", "go")

    with StoreReader(studio.settings.store) as reader:
        assert reader.list_runs() == []


async def test_a_model_of_openais_without_a_key_names_the_variable(studio: Studio) -> None:
    studio.agent("solo", engine="model", model="openai:gpt")
    studio.settings = structs.replace(studio.settings, model="openai:m")

    with pytest.raises(Mistake, match="OPENAI_API_KEY is not set"):
        await studio.run("solo", "go")


async def test_agents_of_one_run_may_use_several_providers(tmp_path: Path) -> None:
    async with ModelServer({"gpt": ["from one"], "claude": ["from the other"], "llama3.2:3b": ["from home"]}) as server:
        environ = {
            "OPENAI_API_KEY": "k",
            "OPENAI_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "k",
            "ANTHROPIC_BASE_URL": server.url,
            "OLLAMA_HOST": server.url.removesuffix("/v1").removeprefix("http://"),
        }
        settings = Settings.load(environ, home=tmp_path, model="openai:gpt")
        agents = [
            Agent(name="a", handoff="b"),
            Agent(name="b", model="anthropic:claude", handoff="c"),
            Agent(name="c", model="ollama:llama3.2:3b"),
        ]
        async with App(settings, environ=environ) as app:
            result = await app.run(agents[0], "hello", agents=agents)

    assert result.text == "from home"
    with StoreReader(settings.store) as reader:
        turns = [entry.event for entry in reader.read_entries(result.run_id)]
    assert [turn.engine for turn in turns if isinstance(turn, TurnStarted)] == [
        "openai:gpt",
        "anthropic:claude",
        "ollama:llama3.2:3b",
    ]


async def test_without_a_model_a_run_is_rehearsed_and_says_so(studio: Studio) -> None:
    studio.agent("solo", engine="model")

    result = await studio.run("solo", "do it")

    assert result.text.startswith("[rehearsed]")
    assert "rehearsal" in studio.events(result, Noticed)[0].text


async def test_an_agents_setting_that_has_no_effect_in_a_run_is_reported(studio: Studio) -> None:
    studio.agent("solo", isolation="worktree")

    result = await studio.run("solo", "do it")

    assert studio.events(result, Noticed) == [
        Noticed(text="solo works in the repository itself; to give it its own checkout, use podium delegate.")
    ]


async def test_resuming_uses_the_agents_as_they_were_when_the_run_began(studio: Studio, tmp_path: Path) -> None:
    folder = tmp_path / "repo" / ".podium" / "agents"
    folder.mkdir(parents=True)
    (folder / "solo.md").write_text("---\nname: solo\nengine: scripted\n---\nThe first prompt.\n")
    studio.scripts["solo"] = SILENT
    with CancelScope() as scope:
        async with studio.app() as app, app.start("solo", "go", repo=tmp_path / "repo") as run:
            await wait_for_turn(run, "solo")
            scope.cancel()
            await run.result()
    (folder / "solo.md").write_text("---\nname: solo\nengine: scripted\n---\nAnother prompt.\n")

    studio.scripts["solo"] = ["done"]
    result = await studio.resume(run.id)

    assert result.text == "done"
    assert {call.system for call in studio.calls} == {"The first prompt."}


async def test_podium_run_and_start_open_and_close_everything(tmp_path: Path) -> None:
    async with ModelServer(["from the model"]) as server:
        settings = Settings.load({}, home=tmp_path, model="openai:m", base_url=server.url)
        agent = Agent(name="solo", prompt="You are alone.")

        result = await podium.run(agent, "hello", settings=settings)
        async with podium.start(agent, "hello", settings=settings) as run:
            texts = [type(entry.event).__name__ async for entry in run.entries()]

    assert result.text == "from the model"
    assert texts[-1] == "RunEnded"


async def test_a_hundred_sessions_cancelled_in_the_middle_leave_nothing_behind(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with ModelServer([{"says": "never heard", "silent": True}]) as server:
        settings = Settings.load({}, home=tmp_path, model="openai:m", base_url=server.url)
        agent = Agent(name="solo", prompt="You are alone.")
        async with App(settings, environ={}) as app:
            async with create_task_group() as group:
                for _ in range(100):
                    group.start_soon(app.run, agent, "hello")
                await server.wait_calls(100)
                group.cancel_scope.cancel()
            with fail_after(40):
                await server.wait_idle()
    await wait_all_tasks_blocked()
    gc.collect()

    assert asyncio.all_tasks() == before
    with StoreReader(settings.store) as reader:
        runs = reader.list_runs()
    assert len(runs) == 100
    assert all(run.owner is None and not isinstance(run.last.event, RunEnded) for run in runs)
