"""Asking and notifying the person, on a real timeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anyio import create_task_group, fail_after, sleep
from anyio.lowlevel import checkpoint

from podium.core.engine import Tool, ToolAnswer
from podium.core.scope import Scope
from podium.core.timeline import Timeline
from podium.store.run_store import RunStore
from podium.testing import read_events
from podium.tools.toolset import NOBODY, ask_person_tool, report_status_tool
from podium.values.event import QuestionAnswered, QuestionAsked, StatusReported, ToolUse


def make_scope(timeline: Timeline) -> Scope:
    return Scope(timeline, "lead/tool#1", operation="lead", digest="d")


async def call_tool(tool: Tool, scope: Scope, **arguments: Any) -> ToolAnswer:
    return await tool.answer(ToolUse(id="c", name=tool.name, arguments=arguments), scope)


async def wait_question(path: Path) -> QuestionAsked:
    while True:
        if found := read_events(path, "r", QuestionAsked):
            question = found[0]
            assert isinstance(question, QuestionAsked)
            return question
        await sleep(0.01)


async def test_a_question_waits_for_its_answer_while_every_limit_is_paused(tmp_path: Path) -> None:
    said: list[ToolAnswer] = []
    async with RunStore(tmp_path / "s.db") as store:
        timeline = Timeline("r", store.begin_run("r"))

        async def ask() -> None:
            said.append(
                await call_tool(ask_person_tool(None), make_scope(timeline), question="Which?", choices=["a", "b"])
            )

        with timeline.work.timeouts.apply_timeout("lead", 0.2) as limit:
            async with create_task_group() as group:
                group.start_soon(ask)
                question = await wait_question(tmp_path / "s.db")
                with fail_after(5):
                    while limit.scope.deadline != float("inf"):
                        await checkpoint()
                make_scope(timeline).record_each_time(QuestionAnswered(id=question.id, text="b", by="ann"))

    assert (question.text, question.choices) == ("Which?", ("a", "b"))
    assert said == [ToolAnswer(text="b")]


async def test_a_resumed_run_waits_on_the_same_question_and_knows_its_answer(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with RunStore(path) as store:
        timeline = Timeline("r", lease := store.begin_run("r"))
        async with create_task_group() as group:
            group.start_soon(lambda: call_tool(ask_person_tool(None), make_scope(timeline), question="Which?"))
            question = await wait_question(path)
            group.cancel_scope.cancel()
        make_scope(timeline).record_each_time(QuestionAnswered(id=question.id, text="this", by="ann"))
        store.release_run(lease)
        await lease.wait_written()

        resumed = Timeline("r", await store.claim_run("r"))
        resumed.load(await store.read_rows("r"))
        answer = await call_tool(ask_person_tool(None), make_scope(resumed), question="Which?")
        await resumed.wait_written()

    assert answer.text == "this"
    assert len(read_events(path, "r", QuestionAsked)) == 1


async def test_in_an_unattended_run_the_agent_decides_itself(tmp_path: Path) -> None:
    async with RunStore(tmp_path / "s.db") as store:
        timeline = Timeline("r", store.begin_run("r"))

        answer = await call_tool(ask_person_tool("deny"), make_scope(timeline), question="Which?")

        assert answer == ToolAnswer(text=NOBODY)
        assert timeline.seq == 0


async def test_a_status_is_recorded_once(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with RunStore(path) as store:
        timeline = Timeline("r", store.begin_run("r"))

        first = await call_tool(report_status_tool(), make_scope(timeline), text="half done")
        again = await call_tool(report_status_tool(), make_scope(timeline), text="half done")
        await timeline.wait_written()

    assert first == again == ToolAnswer(text="noted")
    assert read_events(path, "r", StatusReported) == [StatusReported(text="half done")]


async def test_a_question_without_text_is_refused(tmp_path: Path) -> None:
    async with RunStore(tmp_path / "s.db") as store:
        scope = make_scope(Timeline("r", store.begin_run("r")))

        assert (await call_tool(ask_person_tool(None), scope)).text == (
            "ask_person was called without the required argument `question`; the tool takes `question` and `choices`."
        )
        assert (await call_tool(report_status_tool(), scope, text="")).is_error
