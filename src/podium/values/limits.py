"""Define the limits of a turn and of a model call: how long each can be silent, and how long a turn can take."""

from typing import Literal

from msgspec import Struct

Unattended = Literal["deny", "park"]
"""How to handle a request when nobody is available to answer: deny it, or queue it and pause the run."""


class TurnLimits(Struct, frozen=True, kw_only=True):
    """The limits of a turn: how long it can be silent in each state, and how long it can take in total.

    Times are in seconds.
    """

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


class CallLimits(Struct, frozen=True, kw_only=True):
    """The time limits of a model call, in seconds: until its reply begins, and between two parts of the reply.

    None means that only the limits of the turn apply.
    """

    first_token: float | None = None
    silence: float | None = None


NO_CALL_LIMITS = CallLimits()
LOCAL_CALL_LIMITS = CallLimits(first_token=300.0, silence=120.0)
"""The limits for a server on this machine, which can take minutes to load a model and to read a long prompt."""
