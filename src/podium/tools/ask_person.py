"""Speaking to the person: asking a question and waiting for the answer, saying where the work stands.

Both have their effect as events on the timeline; what a resumed run finds there is not said again.
"""

from __future__ import annotations

import secrets
from math import inf
from typing import Annotated

from msgspec import Meta

from ..core.engine import Tool, ToolAnswer
from ..core.gate import Unfit
from ..core.scope import Scope
from ..values.event import QuestionAnswered, QuestionAsked, StatusReported, ToolUse
from ..values.limits import Unattended
from .tool_arguments import Arguments, read, schema

NOBODY = "Nobody is there to ask. Decide yourself and say what you assumed."


class Question(Arguments, frozen=True, kw_only=True):
    """The arguments of ask_person."""

    question: Annotated[str, Meta(min_length=1, description="What you need to know, understandable by itself.")]
    choices: Annotated[tuple[str, ...], Meta(description="Answers to choose from, if there are such.")] = ()


class Status(Arguments, frozen=True, kw_only=True):
    """The arguments of report_status."""

    text: Annotated[str, Meta(min_length=1, description="One or two sentences.")]


def ask_person(unattended: Unattended | None) -> Tool:
    """The tool that asks the person. Where nobody attends to the run, it says so at once or lets the run rest."""

    async def answer(call: ToolUse, scope: Scope) -> ToolAnswer:
        try:
            asked = read(call, Question)
        except Unfit as error:
            return ToolAnswer(text=str(error), is_error=True)
        return ToolAnswer(text=await _answered(asked, scope, unattended))

    return Tool(
        name="ask_person",
        description="Ask the person something that you cannot find out or decide yourself, and wait for the answer.",
        parameters=schema(Question),
        answer=answer,
        timeout=inf,
        is_step=True,
    )


async def _answered(question: Question, scope: Scope, unattended: Unattended | None) -> str:
    timeline = scope.timeline
    asked = scope.at("question_asked#1").recall(QuestionAsked)
    if asked is None:
        if unattended == "deny":
            return NOBODY
        id = secrets.token_hex(6)
        asked = scope.record(QuestionAsked(id=id, text=question.question, choices=question.choices))
    if asked.id not in timeline.answers:
        if unattended == "deny":
            return NOBODY
        await timeline.settled()
        if unattended == "park":
            timeline.pause()
            await timeline.still()
    with timeline.clock.waiting(scope.path):
        answered = await timeline.answer(asked.id)
    assert isinstance(answered, QuestionAnswered)
    return answered.text


def report_status() -> Tool:
    """The tool that tells the person where the work stands."""

    async def answer(call: ToolUse, scope: Scope) -> ToolAnswer:
        try:
            said = read(call, Status)
        except Unfit as error:
            return ToolAnswer(text=str(error), is_error=True)
        scope.record(StatusReported(text=said.text))
        return ToolAnswer(text="noted")

    return Tool(
        name="report_status",
        description="Tell the person where the work stands. It is shown to them; nothing is asked, nothing waits.",
        parameters=schema(Status),
        answer=answer,
    )
