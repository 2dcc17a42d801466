from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path

import pytest
from anyio import Event as Flag
from anyio import create_task_group, fail_after, sleep, sleep_forever, wait_all_tasks_blocked

from podium.core.engine import (
    EngineSession,
    EngineSessionSpec,
    Finished,
    Piece,
    Postponed,
    Reasoning,
    Superseded,
    Text,
    ToolFinished,
    ToolStarted,
)
from podium.core.engine_sessions import EngineSessionTasks
from podium.core.scope import Scope
from podium.core.session import MAX_QUEUED_PROMPTS, Session
from podium.core.timeline import Timeline
from podium.store.follower import Follower
from podium.store.run_store import RunStore
from podium.testing import read_events
from podium.values.agent import Agent
from podium.values.errors import AgentFailed, OutsideFailed
from podium.values.event import SessionRevived, TextStreamed, TextSuperseded, ToolUse, TurnEnded
from podium.values.usage import TurnLimits

Pieces = Callable[[str], AsyncGenerator[Piece]]


class PlayedEngine:
    """An engine whose sessions are generators: session n runs the n-th one, and later sessions run the last one."""

    name = "played"

    def __init__(self, *plays: Pieces, is_restored: bool = False) -> None:
        self.plays = plays
        self.specs: list[EngineSessionSpec] = []
        self.asked: list[str] = []
        self.closed = 0
        self.is_restored = is_restored

    @asynccontextmanager
    async def open(self, spec: EngineSessionSpec) -> AsyncIterator[EngineSession]:
        self.specs.append(spec)
        try:
            yield PlayedSession(self, self.plays[min(len(self.specs), len(self.plays)) - 1])
        finally:
            self.closed += 1


class PlayedSession:
    def __init__(self, engine: PlayedEngine, play: Pieces) -> None:
        self.engine = engine
        self.play = play
        self.is_restored = engine.is_restored and len(engine.specs) == 1

    def ask(self, prompt: str, turn: Scope) -> AbstractAsyncContextManager[AsyncIterator[Piece]]:
        self.engine.asked.append(prompt)
        return aclosing(self.play(prompt))


async def say_hello(prompt: str) -> AsyncGenerator[Piece]:
    yield Text("hello ")
    yield Text("there")
    yield Finished()


async def say_nothing(prompt: str) -> AsyncGenerator[Piece]:
    yield Reasoning("hm")
    yield Finished()


async def fall_silent(prompt: str) -> AsyncGenerator[Piece]:
    yield Text("one moment")
    await sleep_forever()


SHORT = TurnLimits(running_tool=0.2, used_tools=0.1, thinking=0.05, resumed=0.02, turn=5.0)


class Bench:
    """A session on a real store, and its timeline."""

    def __init__(self, path: Path, engine: PlayedEngine, turn_limits: TurnLimits) -> None:
        self.path = path
        self.engine = engine
        self.turn_limits = turn_limits
        self.notices: list[str] = []

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        async with RunStore(self.path) as store, create_task_group() as group:
            self.timeline = Timeline("r", store.begin_run("r"))
            scope = Scope(self.timeline, "worker", operation="worker", digest="d")
            spec = EngineSessionSpec(agent=Agent(name="worker"), system="You work.")
            session_tasks = EngineSessionTasks(group, on_notice=self.notices.append)
            session = Session(self.engine, spec, scope, session_tasks=session_tasks, turn_limits=self.turn_limits)
            try:
                yield session
            finally:
                await session.aclose()

    def events(self, *kinds: type) -> list[object]:
        return read_events(self.path, "r", *kinds)


@pytest.fixture
def bench(tmp_path: Path) -> Callable[..., Bench]:
    def make_bench(*plays: Pieces, turn_limits: TurnLimits = SHORT, is_restored: bool = False) -> Bench:
        return Bench(tmp_path / "s.db", PlayedEngine(*plays, is_restored=is_restored), turn_limits)

    return make_bench


async def test_a_reply_is_the_text_that_was_said(bench: Callable[..., Bench]) -> None:
    place = bench(say_hello)

    async with place.session() as session:
        reply = await session.ask("hi")

    assert reply.text == "hello there"
    assert place.events(TurnEnded) == [TurnEnded(outcome="succeeded", text="hello there")]


async def test_a_busy_session_takes_the_next_prompt_when_its_turn_comes_and_keeps_the_order(
    bench: Callable[..., Bench],
) -> None:
    go = Flag()

    async def waits(prompt: str) -> AsyncGenerator[Piece]:
        await go.wait()
        yield Text(f"re: {prompt}")
        yield Finished()

    place = bench(waits, turn_limits=TurnLimits())
    replies: list[str] = []

    async with place.session() as session:

        async def ask(prompt: str) -> None:
            replies.append((await session.ask(prompt)).text)

        async with create_task_group() as group:
            for number in range(5):
                group.start_soon(ask, f"p{number}")
            await wait_all_tasks_blocked()
            assert session.is_busy
            go.set()

    assert replies == [f"re: p{number}" for number in range(5)]
    assert place.engine.asked == [f"p{number}" for number in range(5)]


async def test_the_queue_is_bounded_and_says_so(bench: Callable[..., Bench]) -> None:
    async def waits(prompt: str) -> AsyncGenerator[Piece]:
        await sleep_forever()
        yield Finished()

    place = bench(waits, turn_limits=TurnLimits())

    async with place.session() as session, create_task_group() as group:
        for number in range(1 + MAX_QUEUED_PROMPTS):
            group.start_soon(session.ask, f"p{number}")
        await wait_all_tasks_blocked()
        with pytest.raises(AgentFailed, match="it already has 64 prompts waiting"):
            await session.ask("one too many")
        group.cancel_scope.cancel()


async def test_a_session_is_free_again_after_success_failure_timeout_and_cancellation(
    bench: Callable[..., Bench],
) -> None:
    async def by_prompt(prompt: str) -> AsyncGenerator[Piece]:
        if prompt == "break":
            raise KeyError("broken")
        if prompt == "hang":
            await sleep_forever()
        yield Text("ok")
        yield Finished()

    place = bench(by_prompt, turn_limits=TurnLimits(thinking=0.5))

    async with place.session() as session:
        assert (await session.ask("fine")).text == "ok"
        assert not session.is_busy
        with pytest.raises(AgentFailed, match="its engine failed: KeyError: 'broken'"):
            await session.ask("break")
        assert not session.is_busy
        with pytest.raises(AgentFailed, match=r"timed out after 0\.5 s without output"):
            await session.ask("hang")
        assert not session.is_busy
        async with create_task_group() as group:
            group.start_soon(session.ask, "hang")
            await wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        assert not session.is_busy
        assert (await session.ask("fine")).text == "ok"


async def test_an_empty_reply_gets_a_new_engine_session_with_the_same_spec_and_the_whole_prompt_once(
    bench: Callable[..., Bench],
) -> None:
    place = bench(say_nothing, say_hello)

    async with place.session() as session:
        reply = await session.ask("the whole prompt")

    assert reply.text == "hello there"
    assert place.engine.asked == ["the whole prompt", "the whole prompt"]
    assert place.engine.specs[0] == place.engine.specs[1]
    assert place.events(SessionRevived) == [SessionRevived(agent="worker", reason="its reply was empty")]


async def test_a_second_empty_reply_is_a_failure(bench: Callable[..., Bench]) -> None:
    place = bench(say_nothing)

    async with place.session() as session:
        with pytest.raises(AgentFailed, match="worker: its reply was empty"):
            await session.ask("hi")

    assert len(place.engine.asked) == 2


async def test_the_history_is_passed_to_a_revived_engine_session(bench: Callable[..., Bench]) -> None:
    answers = iter(["first", ""])

    async def forgetful(prompt: str) -> AsyncGenerator[Piece]:
        yield Text(next(answers))
        yield Finished()

    place = bench(forgetful, say_hello)

    async with place.session() as session:
        await session.ask("one")
        await session.ask("two")

    assert [(past.prompt, past.reply) for past in place.engine.specs[1].history] == [("one", "first")]


async def test_text_before_a_failure_is_kept(bench: Callable[..., Bench]) -> None:
    place = bench(fall_silent)

    async with place.session() as session:
        with pytest.raises(AgentFailed):
            await session.ask("hi")

    assert place.events(TextStreamed) == [TextStreamed(text="one moment")]
    [ended] = place.events(TurnEnded)
    assert isinstance(ended, TurnEnded)
    assert (ended.outcome, ended.text) == ("timed_out", "one moment")


async def test_text_before_a_cancellation_is_kept(bench: Callable[..., Bench]) -> None:
    place = bench(fall_silent, turn_limits=TurnLimits())

    async with place.session() as session:
        async with create_task_group() as group:
            group.start_soon(session.ask, "hi")
            await wait_all_tasks_blocked()
            group.cancel_scope.cancel()

    assert place.events(TextStreamed) == [TextStreamed(text="one moment")]
    assert place.events(TurnEnded) == []


async def test_a_turn_with_an_open_tool_is_not_finished_whatever_the_engine_says(bench: Callable[..., Bench]) -> None:
    async def hasty(prompt: str) -> AsyncGenerator[Piece]:
        yield ToolStarted(ToolUse(id="1", name="build"))
        yield Finished()
        yield ToolFinished("1")
        yield Text("built")
        yield Finished()

    async def careless(prompt: str) -> AsyncGenerator[Piece]:
        yield ToolStarted(ToolUse(id="1", name="build"))
        yield Finished()

    async with bench(hasty).session() as session:
        assert (await session.ask("build")).text == "built"


async def test_an_engine_that_ends_with_an_open_tool_failed(bench: Callable[..., Bench]) -> None:
    async def careless(prompt: str) -> AsyncGenerator[Piece]:
        yield ToolStarted(ToolUse(id="1", name="build"))
        yield Text("done!")
        yield Finished()

    async with bench(careless).session() as session:
        with pytest.raises(AgentFailed, match="ended the turn before these tools finished: build"):
            await session.ask("build")


async def test_an_engine_that_breaks_off_failed(bench: Callable[..., Bench]) -> None:
    async def broken_off(prompt: str) -> AsyncGenerator[Piece]:
        yield Text("I was about to")

    async with bench(broken_off).session() as session:
        with pytest.raises(AgentFailed, match="stopped in the middle of the turn"):
            await session.ask("go on")


async def test_the_time_limit_depends_on_what_the_turn_is_doing(bench: Callable[..., Bench]) -> None:
    async def in_a_tool(prompt: str) -> AsyncGenerator[Piece]:
        yield ToolStarted(ToolUse(id="1", name="build"))
        await sleep_forever()

    async def after_a_tool(prompt: str) -> AsyncGenerator[Piece]:
        yield ToolStarted(ToolUse(id="1", name="build"))
        yield ToolFinished("1")
        await sleep_forever()

    for play, expected in (
        (in_a_tool, r"build ran for over 0\.2 s"),
        (after_a_tool, r"timed out after 0\.1 s without output"),
        (fall_silent, r"timed out after 0\.05 s without output"),
    ):
        place = bench(play)
        place.path.unlink(missing_ok=True)
        async with place.session() as session:
            with pytest.raises(AgentFailed, match=expected):
                await session.ask("go")


async def test_a_turn_that_never_stops_talking_ends_at_its_absolute_limit(bench: Callable[..., Bench]) -> None:
    async def endless(prompt: str) -> AsyncGenerator[Piece]:
        while True:
            yield Text("and ")
            await sleep(0.005)

    place = bench(endless, turn_limits=TurnLimits(turn=0.1))

    async with place.session() as session:
        with pytest.raises(AgentFailed, match=r"timed out after 0\.1 s"):
            await session.ask("tell me everything")


async def test_talking_resets_the_silence(bench: Callable[..., Bench]) -> None:
    async def slow(prompt: str) -> AsyncGenerator[Piece]:
        for _ in range(8):
            await sleep(0.03)
            yield Text(".")
        yield Finished()

    async with bench(slow, turn_limits=TurnLimits(thinking=0.1)).session() as session:
        assert (await session.ask("go")).text == "........"


async def test_a_restored_engine_session_that_stays_silent_is_replaced_by_a_new_one(
    bench: Callable[..., Bench],
) -> None:
    async def dead(prompt: str) -> AsyncGenerator[Piece]:
        await sleep_forever()
        yield Finished()

    place = bench(dead, say_hello, turn_limits=TurnLimits(resumed=0.02), is_restored=True)

    async with place.session() as session:
        reply = await session.ask("are you there?")

    assert reply.text == "hello there"
    assert place.engine.asked == ["are you there?"] * 2
    [revived] = place.events(SessionRevived)
    assert isinstance(revived, SessionRevived)
    assert revived.reason == "it was silent for 0.02 s after being resumed"


async def test_a_restored_engine_session_gets_the_usual_limits_after_its_first_text(
    bench: Callable[..., Bench],
) -> None:
    async def slow_after_the_first_word(prompt: str) -> AsyncGenerator[Piece]:
        yield Text("yes ")
        await sleep(0.1)
        yield Text("here")
        yield Finished()

    place = bench(slow_after_the_first_word, turn_limits=TurnLimits(resumed=0.02, thinking=5), is_restored=True)

    async with place.session() as session:
        assert (await session.ask("are you there?")).text == "yes here"


async def test_superseded_text_is_replaced_by_the_text_that_follows(bench: Callable[..., Bench]) -> None:
    async def stutters(prompt: str) -> AsyncGenerator[Piece]:
        yield Text("half of")
        yield Superseded()
        yield Text("all of it")
        yield Finished()

    place = bench(stutters)

    async with place.session() as session:
        reply = await session.ask("hi")

    assert reply.text == "all of it"
    assert place.events(TextStreamed, TextSuperseded) == [TextStreamed(text="half of"), TextSuperseded()]


async def test_the_reply_is_what_was_said_after_the_last_tool(bench: Callable[..., Bench]) -> None:
    async def works(prompt: str) -> AsyncGenerator[Piece]:
        yield Text("let me look")
        yield ToolStarted(ToolUse(id="1", name="look"))
        yield ToolFinished("1")
        yield Text("it is there")
        yield Finished()

    async with bench(works).session() as session:
        reply = await session.ask("where?")

    assert reply.text == "it is there"
    assert [call.name for call in reply.calls] == ["look"]


async def test_every_engine_session_is_closed(bench: Callable[..., Bench]) -> None:
    place = bench(say_nothing, say_hello)

    async with place.session() as session:
        await session.ask("hi")

    assert place.engine.closed == len(place.engine.specs) == 2


async def test_streamed_text_is_written_soon_even_when_no_more_follows(bench: Callable[..., Bench]) -> None:
    place = bench(fall_silent, turn_limits=TurnLimits())

    async with place.session() as session, create_task_group() as group:
        group.start_soon(session.ask, "hi")
        with Follower(place.path, "r") as entries, fail_after(40):
            async for entry in entries:
                if isinstance(entry.event, TextStreamed):
                    break
        group.cancel_scope.cancel()

    assert place.events(TextStreamed) == [TextStreamed(text="one moment")]


async def test_an_engine_may_hold_a_task_group_open_whatever_limit_ends_the_turn(bench: Callable[..., Bench]) -> None:
    place = bench(fall_silent, say_hello)
    plain = place.engine.open

    @asynccontextmanager
    async def with_a_task(spec: EngineSessionSpec) -> AsyncIterator[EngineSession]:
        async with create_task_group() as group:
            group.start_soon(sleep_forever)
            async with plain(spec) as engine_session:
                yield engine_session
            group.cancel_scope.cancel()

    place.engine.open = with_a_task  # type: ignore[method-assign]

    async with place.session() as session:
        with pytest.raises(AgentFailed, match="without output"):
            await session.ask("hi")
        assert (await session.ask("hi")).text == "hello there"

    assert place.engine.closed == 2
    assert place.notices == []


async def test_an_engine_session_that_fails_to_close_is_reported_and_does_not_fail_the_turn(
    bench: Callable[..., Bench],
) -> None:
    place = bench(say_hello)

    @asynccontextmanager
    async def fail_to_close(spec: EngineSessionSpec) -> AsyncIterator[EngineSession]:
        place.engine.specs.append(spec)
        yield PlayedSession(place.engine, say_hello)
        raise OSError("stuck")

    place.engine.open = fail_to_close  # type: ignore[method-assign]

    async with place.session() as session:
        assert (await session.ask("hi")).text == "hello there"

    assert place.notices == ["an engine session did not close cleanly: OSError: stuck"]


async def test_an_engine_that_cannot_be_opened_is_the_turns_failure(bench: Callable[..., Bench]) -> None:
    place = bench(say_hello)

    @asynccontextmanager
    async def fail_to_open(spec: EngineSessionSpec) -> AsyncIterator[EngineSession]:
        raise OutsideFailed("nobody there")
        yield

    place.engine.open = fail_to_open  # type: ignore[method-assign]

    async with place.session() as session:
        with pytest.raises(AgentFailed, match="worker: nobody there"):
            await session.ask("hi")


async def test_an_empty_reply_after_a_tool_is_empty_too(bench: Callable[..., Bench]) -> None:
    async def fizzles_out(prompt: str) -> AsyncGenerator[Piece]:
        yield ToolStarted(ToolUse(id="1", name="look"))
        yield ToolFinished("1")
        yield Finished()

    async with bench(fizzles_out).session() as session:
        with pytest.raises(AgentFailed, match="its reply was empty"):
            await session.ask("hi")


async def test_a_tool_may_have_the_last_word(bench: Callable[..., Bench]) -> None:
    async def decides(prompt: str) -> AsyncGenerator[Piece]:
        yield ToolStarted(ToolUse(id="1", name="route_to"))
        yield ToolFinished("1")
        yield Finished(by_tool=True)

    async with bench(decides).session() as session:
        reply = await session.ask("hi")

    assert (reply.text, [call.name for call in reply.calls]) == ("", ["route_to"])


async def test_a_wait_that_was_announced_is_no_silence(bench: Callable[..., Bench]) -> None:
    async def waits(prompt: str) -> AsyncGenerator[Piece]:
        yield Postponed(0.2)
        await sleep(0.2)
        yield Text("at last")
        yield Finished()

    async with bench(waits).session() as session:
        assert (await session.ask("hi")).text == "at last"


async def test_an_engine_can_allow_itself_longer_pauses_until_it_takes_that_back(bench: Callable[..., Bench]) -> None:
    async def pauses(prompt: str) -> AsyncGenerator[Piece]:
        yield Postponed(0.0, pause=5.0)
        yield Text("a")
        await sleep(0.3)
        yield Text("b")
        yield Postponed(0.0)
        await sleep(60)

    async with bench(pauses, turn_limits=TurnLimits(thinking=0.1)).session() as session:
        with pytest.raises(AgentFailed, match=r"timed out after 0\.1 s without output"):
            await session.ask("hi")


async def test_half_a_character_is_written_as_a_mark_and_breaks_nothing(bench: Callable[..., Bench]) -> None:
    async def stutters(prompt: str) -> AsyncGenerator[Piece]:
        yield Text("caf\ud83d")
        yield Finished()

    async with bench(stutters).session() as session:
        reply = await session.ask("hi")

    assert reply.text.startswith("caf")
    reply.text.encode()


async def test_streamed_text_is_coalesced(bench: Callable[..., Bench]) -> None:
    async def chatty(prompt: str) -> AsyncGenerator[Piece]:
        for _ in range(60):
            yield Text("x")
            await sleep(0.01)
        yield Finished()

    place = bench(chatty, turn_limits=TurnLimits())

    async with place.session() as session:
        await session.ask("talk")

    assert 1 <= len(place.events(TextStreamed)) <= 4
