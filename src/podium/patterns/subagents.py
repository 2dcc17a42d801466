"""Create the tools that an agent uses to call its sub-agents.

The agent decides when to call them and what to ask. Simultaneous calls run concurrently. Before a run starts,
Podium checks how deeply calls are nested, and that no agent calls itself, even indirectly.
"""

from __future__ import annotations

from ..core.engine import Tool, ToolAnswer
from ..core.operation import Operation
from ..core.scope import Scope
from ..values.agent import Agent
from ..values.event import ToolUse
from ..values.request import Request

TIMEOUT = 3600.0


def make_subagent_tools(op: Operation) -> tuple[Tool, ...]:
    """Create a tool for each agent that the operation's agent can call."""
    names = dict.fromkeys(reference.name for reference in op.agent.references() if reference.kind == "tool")
    return tuple(_make_subagent_tool(op, op.agents[name]) for name in names)


def _make_subagent_tool(op: Operation, agent: Agent) -> Tool:
    async def answer_call(call: ToolUse, scope: Scope) -> ToolAnswer:
        text = call.arguments.get("request")
        if not isinstance(text, str) or not text.strip():
            return ToolAnswer(text=f"{agent.name} needs a request: say in `request` what it should do.", is_error=True)
        part = await op.child(agent.name, "tool", at=scope).run_as_part(Request(text=text, origin=op.request.original))
        if part.failure is not None:
            return ToolAnswer(text=f"{agent.name} failed: {part.failure.describe_to(agent.name)}", is_error=True)
        return ToolAnswer(text=part.text)

    return Tool(
        name=agent.name.replace(":", "_"),
        description=agent.description or f"The agent {agent.name}.",
        parameters={
            "type": "object",
            "properties": {
                "request": {
                    "type": "string",
                    "description": "What the agent should do, with all the context it needs: it sees nothing else.",
                }
            },
            "required": ["request"],
        },
        answer=answer_call,
        timeout=TIMEOUT,
    )
