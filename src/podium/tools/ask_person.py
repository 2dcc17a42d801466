"""The tools `ask_person`, which asks a question and waits for the answer, and `report_status`.

Both record events on the timeline. A resumed run does not repeat events that are already there.
"""

from __future__ import annotations

import secrets
from math import inf
from typing import Annotated

from msgspec import Meta

from ..core.engine import Tool, ToolAnswer
from ..core.gate import InvalidCall
from ..core.scope import Scope
from ..values.event import QuestionAnswered, QuestionAsked, StatusReported, ToolUse
from ..values.limits import Unattended
from .tool_arguments import Arguments, build_schema, parse_arguments

NOBODY = "Nobody is available to answer. Decide yourself and say what you assumed."


class AskPersonArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of ask_person."""

    question: Annotated[str, Meta(min_length=1, description="What you need to know, understandable without context.")]
    choices: Annotated[tuple[str, ...], Meta(description="Answers to choose from, if any.")] = ()


class ReportStatusArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of report_status."""

    text: Annotated[str, Meta(min_length=1, description="One or two sentences.")]


def ask_person_tool(unattended: Unattended | None) -> Tool:
    """Return the tool that asks the person. In an unattended run, it answers NOBODY or pauses the run."""

    async def ask_and_wait(call: ToolUse, scope: Scope) -> ToolAnswer:
        try:
            asked = parse_arguments(call, AskPersonArguments)
        except InvalidCall as error:
            return ToolAnswer(text=str(error), is_error=True)
        return ToolAnswer(text=await _wait_for_answer(asked, scope, unattended))

    return Tool(
        name="ask_person",
        description="Ask the person something that you cannot find out or decide yourself, and wait for the answer.",
        parameters=build_schema(AskPersonArguments),
        answer=ask_and_wait,
        timeout=inf,
        is_step=True,
    )


async def _wait_for_answer(question: AskPersonArguments, scope: Scope, unattended: Unattended | None) -> str:
    timeline = scope.timeline
    asked = scope.child("question_asked#1").find_outcome(QuestionAsked)
    if asked is None:
        if unattended == "deny":
            return NOBODY
        id = secrets.token_hex(6)
        asked = scope.record(QuestionAsked(id=id, text=question.question, choices=question.choices))
    if asked.id not in timeline.answers:
        if unattended == "deny":
            return NOBODY
        await timeline.wait_written()
        if unattended == "park":
            timeline.pause()
            await timeline.wait_while_paused()
    with timeline.timeouts.pause_timeouts(scope.path):
        answered = await timeline.wait_answer(asked.id)
    assert isinstance(answered, QuestionAnswered)
    return answered.text


def report_status_tool() -> Tool:
    """Return the tool that reports the work's status to the person."""

    async def record_status(call: ToolUse, scope: Scope) -> ToolAnswer:
        try:
            said = parse_arguments(call, ReportStatusArguments)
        except InvalidCall as error:
            return ToolAnswer(text=str(error), is_error=True)
        scope.record(StatusReported(text=said.text))
        return ToolAnswer(text="noted")

    return Tool(
        name="report_status",
        description="Tell the person the status of the work. It is only shown; you do not get or wait for an answer.",
        parameters=build_schema(ReportStatusArguments),
        answer=record_status,
    )
