"""Require the user's consent before an agent that the user did not write uses an installed coding agent.

A coding agent uses the user's own login and can cost money, so neither a repository's files nor a model can choose it
unless the user has confirmed it, or has defined it in their own settings.
"""

from __future__ import annotations

from ...engines.acp.agent_program import AgentProgram
from ...files.confirmed_model_servers import load_confirmed
from ...files.settings import Settings
from ...values.agent import Agent
from ...values.errors import Mistake


def is_agreed(program: AgentProgram, settings: Settings) -> bool:
    """Return whether the user has agreed to the use of a coding agent."""
    return program.is_own or program.name in load_confirmed(settings.home).agents


def require_agent_consent(agent: Agent, program: AgentProgram, settings: Settings) -> None:
    """Raise Mistake if an agent that the user did not write uses a coding agent without the user's consent."""
    if agent.source not in ("user", "code") and not is_agreed(program, settings):
        raise Mistake(
            f"{agent.name} uses {program.name}, a coding agent that you have not confirmed; it uses your own login "
            f"and can cost money; to confirm it, run podium engines use {program.name}"
        )
