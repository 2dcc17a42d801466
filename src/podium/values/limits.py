"""Patience: how long a turn may be silent before it is given up."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Unattended = Literal["deny", "park"]
"""What becomes of a request when nobody is there to ask: refused, or kept while the run rests."""


class TurnLimits(Struct, frozen=True, kw_only=True):
    """Seconds of silence by what a turn is doing; and how long it may take at all."""

    running_tool: float = 600.0
    used_tools: float = 180.0
    thinking: float = 120.0
    resumed: float = 30.0
    turn: float = 3600.0
    tool_calls_a_minute: int = 60
    """How often an agent may act; what comes faster waits."""
    approval: float = 300.0
    """How long a person may take over a request for permission."""


DEFAULT_TURN_LIMITS = TurnLimits()
