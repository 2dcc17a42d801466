"""Find the coding agents that can be used as engines: those that Podium knows, and those in the user's settings."""

from __future__ import annotations

import os

from msgspec import structs

from ...engines.acp.agent_program import AGENT_PROGRAMS, AgentProgram
from ...files.settings import Settings
from ...files.settings_document import Launch
from ...values.errors import Mistake


def list_agent_programs(settings: Settings) -> dict[str, AgentProgram]:
    """Return the coding agents, keyed by name. An entry in the settings replaces the command of a known agent.

    Raise Mistake if an entry has no command and its name is not that of a known agent.
    """
    own = {name: _combine(name, launch) for name, launch in settings.engines.items()}
    return {**AGENT_PROGRAMS, **own}


def _combine(name: str, launch: Launch) -> AgentProgram:
    """Return the coding agent that an entry in the settings defines, based on the known agent of that name, if any."""
    known = AGENT_PROGRAMS.get(name)
    if known is None and not launch.command:
        raise Mistake(
            f"engines.{name} in your settings has no command, and {name} is not a coding agent that Podium knows; "
            "add command: PROGRAM"
        )
    known = known or AgentProgram(name=name, command=(launch.command,))
    return structs.replace(
        known,
        command=(launch.command or known.command[0], *(launch.args or known.command[1:])),
        env={**known.env, **launch.env},
        mode=launch.mode or known.mode,
        hosts=(*known.hosts, *launch.hosts),
        readable=tuple(map(os.path.expanduser, launch.readable)),
        is_sandboxed=launch.sandbox,
        is_own=bool(launch.command),
    )
