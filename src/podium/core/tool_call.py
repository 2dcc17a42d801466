"""Run one of an agent's tool calls: record that it started, run the tool with its timeout, and record the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..values.action import Action
from ..values.errors import PodiumError
from ..values.event import ToolAnswered, ToolCalled, ToolUse
from ..values.request import replace_surrogates
from .engine import Tool, ToolAnswer
from .scope import Scope


async def run_tool_call(tools: Mapping[str, Tool], call: ToolUse, place: Scope, *, agent: str) -> ToolAnswer:
    """Run a call at its scope, and return the answer.

    A recorded answer is returned without running the tool again if the tool's calls are steps (`is_step`), the call
    timed out, or the tool no longer exists. Otherwise, the tool is run even if an answer is recorded.
    """
    tool = tools.get(call.name)
    place.record(make_tool_called(call, place, agent=agent))
    known = place.child("tool_answered#1").find_outcome(ToolAnswered)
    if known is not None and (tool is None or tool.is_step or known.is_timed_out):
        answer = ToolAnswer(text=known.text, is_error=known.is_error)
    else:
        answer, is_timed_out = (
            await _invoke_tool(tool, call, place) if tool else (_answer_unknown_tool(call, tools), False)
        )
        answer = replace(answer, text=replace_surrogates(place.timeline.redaction.redact_text(answer.text)))
        place.record(ToolAnswered(id=call.id, text=answer.text, is_error=answer.is_error, is_timed_out=is_timed_out))
    if tool is not None and tool.after_answer is not None:
        await tool.after_answer(call, place, answer)
    return answer


def make_tool_called(call: ToolUse, place: Scope, *, agent: str) -> ToolCalled:
    """Return the event for the start of a call."""
    action = Action(run=place.timeline.run, agent=agent, tool=call.name, arguments=call.arguments)
    return ToolCalled(id=call.id, action=action, is_from_text=call.is_from_text, is_emulated=call.is_emulated)


async def _invoke_tool(tool: Tool, call: ToolUse, place: Scope) -> tuple[ToolAnswer, bool]:
    """Return the tool's answer, and whether it timed out."""
    if call.unreadable:
        return ToolAnswer(text=f"The arguments for {tool.name} are not a JSON object.", is_error=True), False
    try:
        with place.timeline.work.timeouts.apply_timeout(place.path, tool.timeout):
            return await tool.answer(call, place), False
    except PodiumError:
        raise
    except Exception as error:
        # A tool can be third-party code: its exception becomes its answer.
        return ToolAnswer(text=f"{tool.name} failed: {type(error).__name__}: {error}", is_error=True), False
    return ToolAnswer(text=f"{tool.name} was stopped after {tool.timeout:g} s.", is_error=True), True


def _answer_unknown_tool(call: ToolUse, tools: Mapping[str, Tool]) -> ToolAnswer:
    known = ", ".join(tools) or "none"
    return ToolAnswer(text=f"Tool {call.name!r} not found; available: {known}.", is_error=True)
