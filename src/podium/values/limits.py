"""The limits of a turn: how long it may be silent, how long it may take, and how often it may act."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Unattended = Literal["deny", "park"]
"""How to handle a request when nobody is there to ask: deny it, or keep it and pause the run."""


class TurnLimits(Struct, frozen=True, kw_only=True):
    """Limits of a turn in seconds: how long it may be silent, by what it is doing, and how long it may take in all."""

    running_tool: float = 600.0
    used_tools: float = 180.0
    thinking: float = 120.0
    resumed: float = 30.0
    turn: float = 3600.0
    tool_calls_a_minute: int = 60
    """How many tool calls an agent may make per minute; further calls wait."""
    approval: float = 300.0
    """How long a person may take to answer a permission request."""


DEFAULT_TURN_LIMITS = TurnLimits()
