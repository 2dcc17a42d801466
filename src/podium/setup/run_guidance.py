"""Collect what the agents of a new run are told about their repository, and add it to their prompts."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from ..core.redaction import Redaction
from ..values.agent import Agent
from ..values.diagnostic import Diagnostic
from ..values.guidance import Guidance
from .hidden_files import make_hidden_test
from .instruction_files import format_instructions, read_instruction_files
from .settings import Settings


class ReadGuidance(NamedTuple):
    """The guidance of a new run, and notices for the user."""

    guidance: Guidance | None
    notices: list[str]


async def read_guidance(repo: Path | None, settings: Settings, redaction: Redaction) -> ReadGuidance:
    """Read what the agents of a run in this repository are told about it, exactly as a resumed run will read it.

    The guidance is None without a repository, and if there is nothing to tell.
    """
    if repo is None:
        return ReadGuidance(None, [])
    read = await read_instruction_files(repo, make_hidden_test(settings.build_rules()))
    notices = [f"{diagnostic}." for diagnostic in read.diagnostics]
    guidance = Guidance(instructions=format_instructions(read.files))
    if guidance == Guidance():
        return ReadGuidance(None, notices)
    written = redaction.redact_line(msgspec.json.encode(guidance))
    return ReadGuidance(msgspec.json.decode(written, type=Guidance), notices)


async def check_guidance(repo: Path, settings: Settings) -> tuple[Diagnostic, ...]:
    """Return a warning for everything in a repository's files that its agents are not told."""
    return (await read_instruction_files(repo, make_hidden_test(settings.build_rules()))).diagnostics


def build_agent_prompt(settings: Settings, guidance: Guidance | None, agent: Agent) -> str:
    """Return an agent's system prompt, with what the run recorded about the repository if the agent works there."""
    system = settings.build_system_prompt(agent)
    if guidance is None or not works_in_checkout(agent):
        return system
    return f"{system}\n\n{guidance.instructions}".lstrip()


def works_in_checkout(agent: Agent) -> bool:
    """Return whether an agent reads or changes files: it has tools for that, or leads a team."""
    if agent.tools is None:
        return agent.router is None
    from ..tools.toolset import CHECKOUT_TOOLS, resolve_tool_name  # for start-up time: not every agent lists tools

    return any(resolve_tool_name(entry) in CHECKOUT_TOOLS for entry in agent.tools)
