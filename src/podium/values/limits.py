"""Define a turn's limits: how long it can be silent, how long it can take, and how often it can call tools."""

from typing import Literal

from msgspec import Struct

Unattended = Literal["deny", "park"]
"""How to handle a request when nobody is available to answer: deny it, or queue it and pause the run."""


class TurnLimits(Struct, frozen=True, kw_only=True):
    """A turn's limits, most in seconds: how long it can be silent in each state, and how long it can take in total."""

    running_tool: float = 600.0
    used_tools: float = 180.0
    thinking: float = 120.0
    resumed: float = 30.0
    turn: float = 3600.0
    tool_calls_a_minute: int = 60
    """How many tool calls an agent can make per minute; further calls wait."""
    approval: float = 300.0
    """How long a person can take to answer a permission request."""


DEFAULT_TURN_LIMITS = TurnLimits()
