"""Estimate how many tokens an agent's system prompt and tools use in every model call.

The agent is run up to its first model call, as in a dry run, because tools also come from teams, routers and
sub-agents. No model is called, no MCP server is started, and nothing is stored.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory

from anyio import move_on_after
from msgspec import Struct, structs

from ...app import App, RunOptions
from ...engines.model.model_wire import Model, ModelCall, ReplyPart
from ...engines.model.providers import REHEARSAL
from ...engines.model.reply_recorder import count_tool_characters, estimate_tokens
from ...engines.model.tool_loop import ModelEngine
from ...engines.rehearsal import RehearsalWire
from ...files.settings import Settings
from ...files.settings_document import SettingsDocument
from ...runs.run_start import start_run
from ...values.agent import Agent
from ...values.errors import OutsideFailed
from ...values.usage import Usage
from .command_options import get_command_actor

LONGEST_SECONDS = 30.0
REQUEST = "Measure the prompt."


class ToolTokens(Struct, frozen=True, kw_only=True):
    """The estimated number of tokens that the name, description and schema of a tool use."""

    name: str
    tokens: int


class PromptTokens(Struct, frozen=True, kw_only=True):
    """The estimated number of tokens that an agent's system prompt and tools use in every model call.

    `uncounted` lists the agent's MCP tools. They cannot be counted, because only their servers know their schemas.
    """

    system: int
    tools: tuple[ToolTokens, ...]
    total: int
    uncounted: tuple[str, ...] = ()


async def measure_prompt(agent: Agent, settings: Settings, repo: Path) -> PromptTokens | None:
    """Estimate the number of tokens in an agent's prompt and tools.

    Return None if running the agent does not call its model. Raise Mistake if the agent cannot run.
    """
    wire = _MeasuringWire(agent.name)
    engine = ModelEngine(Model(wire=wire, add_cost=Usage.as_rehearsed), name=REHEARSAL)
    with TemporaryDirectory(prefix="podium-") as folder:
        aside = structs.replace(
            settings,
            store=Path(folder) / "podium.db",
            model=REHEARSAL,
            sandbox=False,
            mcp_servers={},
            proposed=SettingsDocument(),
        )
        engines = dict.fromkeys(("model", "scripted", REHEARSAL), engine)
        async with App(aside, engines=engines) as app:
            with move_on_after(LONGEST_SECONDS):
                options: RunOptions = {"repo": repo, "leaves_no_traces": True}
                async with start_run(app.runs, agent, REQUEST, options, by=get_command_actor()) as run:
                    await run.result()
    return None if wire.call is None else _count_prompt_tokens(wire.call, agent)


def _count_prompt_tokens(call: ModelCall, agent: Agent) -> PromptTokens:
    """Estimate the number of tokens in a call's system prompt and tools, as the engine does for budgets."""
    sizes = {tool.name: count_tool_characters(tool) for tool in call.tools}
    tools = [ToolTokens(name=name, tokens=estimate_tokens(size)) for name, size in sizes.items()]
    return PromptTokens(
        system=estimate_tokens(len(call.system)),
        tools=tuple(sorted(tools, key=lambda tool: -tool.tokens)),
        total=estimate_tokens(len(call.system) + sum(sizes.values())),
        uncounted=tuple(entry for entry in agent.tools or () if entry.startswith("mcp__")),
    )


class _MeasuringWire:
    """Records the measured agent's first call and makes all its calls fail. Other agents get simulated replies."""

    def __init__(self, agent: str) -> None:
        self.call: ModelCall | None = None
        self._agent = agent
        self._rehearsal = RehearsalWire()

    async def stream(self, call: ModelCall) -> AsyncGenerator[ReplyPart, None]:
        if call.agent == self._agent:
            self.call = self.call or call
            raise OutsideFailed("the model was not called; only the tokens of the prompt are counted")
        async with aclosing(self._rehearsal.stream(call)) as parts:
            async for part in parts:
                yield part
