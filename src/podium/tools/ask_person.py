"""Provide the tools `ask_person`, which asks a question and waits for the answer, and `report_status`.

Both tools record an event on the timeline. A resumed run does not record the event again.
"""

from __future__ import annotations

from math import inf
from typing import Annotated

from msgspec import Meta

from ..core.engine import Tool, ToolAnswer
from ..core.gate import InvalidCall
from ..core.person_question import ask_question
from ..core.scope import Scope
from ..core.tool_arguments import Arguments, build_schema, parse_arguments
from ..values.event import QuestionAsked, StatusReported, ToolUse
from ..values.limits import Unattended

NOBODY = "Nobody is available to answer. Decide yourself and say what you assumed."


class AskPersonArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of ask_person."""

    question: Annotated[str, Meta(min_length=1)]
    choices: tuple[str, ...] = ()


class ReportStatusArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of report_status."""

    text: Annotated[str, Meta(min_length=1)]


def ask_person_tool(unattended: Unattended | None) -> Tool:
    """Return the tool that asks the user. In an unattended run, the tool answers NOBODY or pauses the run."""

    async def ask_and_wait(call: ToolUse, scope: Scope) -> ToolAnswer:
        try:
            asked = parse_arguments(call, AskPersonArguments)
        except InvalidCall as error:
            return ToolAnswer(text=str(error), is_error=True)
        question = QuestionAsked(id="", text=asked.question, choices=asked.choices)
        answered = await ask_question(scope, question, unattended=unattended)
        return ToolAnswer(text=NOBODY if answered is None else answered.text)

    return Tool(
        name="ask_person",
        description="Ask the user for information that you cannot find.",
        parameters=build_schema(AskPersonArguments),
        answer=ask_and_wait,
        timeout=inf,
        is_step=True,
    )


def report_status_tool() -> Tool:
    """Return the tool that reports the status of the work to the user."""

    async def record_status(call: ToolUse, scope: Scope) -> ToolAnswer:
        try:
            said = parse_arguments(call, ReportStatusArguments)
        except InvalidCall as error:
            return ToolAnswer(text=str(error), is_error=True)
        scope.record(StatusReported(text=said.text))
        return ToolAnswer(text="noted")

    return Tool(
        name="report_status",
        description="Report the status of your work to the user.",
        parameters=build_schema(ReportStatusArguments),
        answer=record_status,
    )
