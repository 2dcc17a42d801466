"""Define the tool with which a model says that a task is not done, when none of its calls has worked.

In words, small models claim again that the task is done; offered a call or this tool, they do not.
"""

from __future__ import annotations

from functools import cache

from ...core.engine import Tool, ToolAnswer
from ...core.scope import Scope
from ...values.event import ToolUse

NOT_DONE = "not_done"


@cache
def make_not_done_tool() -> Tool:
    """Return the tool. The tool loop ends the turn when it is called, so it has no answer."""
    return Tool(
        name=NOT_DONE,
        description="Say that the task is not done, and why.",
        parameters={
            "type": "object",
            "properties": {"why": {"type": "string"}},
            "required": ["why"],
            "additionalProperties": False,
        },
        answer=_answer,
    )


async def _answer(call: ToolUse, place: Scope) -> ToolAnswer:
    return ToolAnswer(text="Noted.")
