"""Calling tools as the gate does, but without the gate: prepared, then performed."""

from __future__ import annotations

from typing import Any

from podium.core.engine import ToolAnswer
from podium.core.gate import ActingTool, PreparedCall
from podium.values.action import Action
from podium.values.event import ToolUse


def make_tool_use(tool: ActingTool, **arguments: Any) -> ToolUse:
    return ToolUse(id="c1", name=tool.name, arguments=arguments)


async def call_tool(tool: ActingTool, **arguments: Any) -> ToolAnswer:
    prepared = await tool.prepare(make_tool_use(tool, **arguments))
    return await prepared.act()


def make_started_action(tool: ActingTool, prepared: PreparedCall) -> Action:
    """Return the event of an action that has started."""
    return Action(
        run="r",
        agent="a",
        tool=tool.name,
        arguments=dict(prepared.arguments),
        inputs=dict(prepared.inputs),
        outputs=dict(prepared.outputs),
    )
