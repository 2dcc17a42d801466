"""`podium agents show`: show one agent, and how many tokens its prompt and tools use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click
from msgspec import UNSET, UnsetType

from ...core.redaction import Redaction
from ...files.discovery import load_roster
from ...files.roster_listing import AgentItem
from ...files.settings import Settings
from ...runs.assembly.run_guidance import can_load_skills, describe_guidance, read_guidance, works_in_checkout
from ...system.locations import find_home_folder, find_repo
from ...values.agent import Agent
from ...values.column import DocumentPart
from ...values.event import SCHEMA
from ...values.guidance import Guidance, Skill
from ..output.command_options import json_option, repo_option
from ..output.text import align_columns, as_json, escape_for_terminal

if TYPE_CHECKING:
    from ..output.prompt_tokens import PromptTokens


class AgentMemory(DocumentPart, frozen=True, kw_only=True):
    """An agent's notes from earlier runs, and their file."""

    path: str
    text: str


class AgentDetails(AgentItem, frozen=True, kw_only=True):
    """An agent in full, with its instructions, skills and memory for the repository."""

    engine: str
    model: str
    tools: tuple[str, ...] | None
    disallowed_tools: tuple[str, ...]
    uses: list[str]
    prompt: str
    instructions: str
    skills: tuple[Skill, ...]
    memory: AgentMemory | None
    tokens: PromptTokens | UnsetType | None
    schema: int = SCHEMA


@click.command("show")
@click.argument("name")
@click.option("--tokens", "counts_tokens", is_flag=True, help="Show how many tokens the prompt and the tools use.")
@repo_option
@json_option
def agents_show_command(name: str, counts_tokens: bool, repo: Path | None, is_json: bool) -> None:
    """Show the agent NAME: its source, model, tools and prompt, and what it is told about the repository.

    With --tokens, show instead how many tokens its system prompt and each of its tools use in every model call. These
    are estimates, based on four characters per token; providers count differently.
    """
    home = find_home_folder()
    folder = (repo or find_repo(Path.cwd(), home=home)).absolute()
    agent = load_roster(folder, home).get(name)
    settings = Settings.load(os.environ, folder)
    guidance, notices = anyio.run(read_guidance, folder, [agent], settings, Redaction())
    tokens = _measure_tokens(agent, settings, folder) if counts_tokens else None
    if is_json:
        click.echo(as_json(_describe_agent(agent, guidance, tokens if counts_tokens else UNSET)))
    elif counts_tokens:
        click.echo(escape_for_terminal("\n".join(format_tokens(agent, tokens))))
    else:
        click.echo(escape_for_terminal("\n".join([*_format_agent(agent), *_format_guidance(agent, guidance, notices)])))


def _describe_agent(agent: Agent, guidance: Guidance | None, tokens: PromptTokens | UnsetType | None) -> AgentDetails:
    """Return an agent in full. `tokens` is unset if they were not counted."""
    memory = None if guidance is None else guidance.memories.get(agent.name)
    return AgentDetails.of(
        agent,
        uses=[reference.name for reference in agent.references()],
        instructions=guidance.instructions if guidance is not None and works_in_checkout(agent) else "",
        skills=() if guidance is None or not can_load_skills(agent) else guidance.skills,
        memory=None if memory is None else AgentMemory.of(memory),
        tokens=tokens,
    )


def _format_agent(agent: Agent) -> Iterator[str]:
    """Yield the lines that describe an agent."""
    yield f"{agent.name}  {agent.description}".rstrip()
    yield f"{agent.source}, {agent.path}" if agent.path else agent.source
    yield f"engine {agent.engine}, model {agent.model or 'default'}"
    yield f"tools: {'default' if agent.tools is None else ', '.join(agent.tools) or 'none'}"
    if agent.disallowed_tools:
        yield f"without: {', '.join(agent.disallowed_tools)}"
    if uses := [reference.name for reference in agent.references()]:
        yield f"works with: {', '.join(dict.fromkeys(uses))}"
    yield ""
    yield agent.prompt.strip()


def _format_guidance(agent: Agent, guidance: Guidance | None, notices: list[str]) -> Iterator[str]:
    """Yield the lines that show an agent's instructions, skills and memory for the repository, then the notices."""
    for text in describe_guidance(guidance, agent):
        yield ""
        yield text
    for notice in notices:
        yield ""
        yield f"notice: {notice}"


def format_tokens(agent: Agent, tokens: PromptTokens | None) -> Iterator[str]:
    """Yield the lines that show how many tokens an agent's prompt and tools use."""
    if tokens is None:
        yield f"{agent.name}: not measured, because the agent itself made no model call in a trial run"
        return
    yield f"{agent.name}: about {tokens.total:,} tokens in every model call (estimated at 4 characters per token)"
    counts = {"system prompt": tokens.system} | {tool.name: tool.tokens for tool in tokens.tools}
    rows = align_columns([[what, f"{number:,}"] for what, number in counts.items()])
    yield from (f"  {'  '.join(row)}" for row in rows)
    if tokens.uncounted:
        yield f"not counted, because the MCP servers were not started: {', '.join(tokens.uncounted)}"


def _measure_tokens(agent: Agent, settings: Settings, repo: Path) -> PromptTokens | None:
    from ..output.prompt_tokens import measure_prompt  # imported here to keep start-up fast: only --tokens needs it

    return anyio.run(measure_prompt, agent, settings, repo)
