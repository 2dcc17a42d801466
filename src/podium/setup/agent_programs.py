"""Find the coding agents that can be used as engines: those that Podium knows, and those in the user's settings."""

from __future__ import annotations

from msgspec import structs

from ..engines.acp.agent_program import AGENT_PROGRAMS, AgentProgram
from .settings import Settings


def list_agent_programs(settings: Settings) -> dict[str, AgentProgram]:
    """Return the coding agents, keyed by name. An entry in the settings replaces the command of a known agent."""
    own: dict[str, AgentProgram] = {}
    for name, launch in settings.engines.items():
        known = AGENT_PROGRAMS.get(name, AgentProgram(name=name, command=(launch.command,)))
        command = (launch.command, *(launch.args or known.command[1:]))
        mode = launch.mode or known.mode
        own[name] = structs.replace(known, command=command, env={**known.env, **launch.env}, mode=mode, is_own=True)
    return {**AGENT_PROGRAMS, **own}
