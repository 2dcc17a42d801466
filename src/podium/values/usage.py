"""Define model usage, in tokens, money, calls and time, and the limits of a turn and of a model call.

Usage is recorded only with the outcomes of model calls; every total is the sum of those.
"""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct, convert, structs

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


class Usage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Model usage, in amounts that can be added up. `seconds` is how long the calls took.

    `usd` covers the calls whose price is known; `unpriced` is the number of other calls. `estimated` is the number of
    calls whose tokens are estimated. Of the input tokens, `cached_tokens` were read from the provider's cache and
    `written_tokens` were written to it. Calls to the rehearsal engine reach no model, so they are counted only in the
    fields that begin with `rehearsed_`, with an estimate of the tokens that a model would have used.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    usd: float = 0.0
    calls: int = 0
    unpriced: int = 0
    estimated: int = 0
    tool_calls: int = 0
    seconds: float = 0.0
    rehearsed_calls: int = 0
    rehearsed_input_tokens: int = 0
    rehearsed_output_tokens: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def as_rehearsed(self) -> "Usage":
        """Return the usage of a model call as the usage of a rehearsed call."""
        return Usage(
            tool_calls=self.tool_calls,
            seconds=self.seconds,
            rehearsed_calls=self.calls,
            rehearsed_input_tokens=self.input_tokens,
            rehearsed_output_tokens=self.output_tokens,
        )

    def with_rehearsed(self) -> "Usage":
        """Return this usage with the rehearsed calls counted as model calls."""
        if not self.rehearsed_calls:
            return self
        return structs.replace(
            self,
            calls=self.calls + self.rehearsed_calls,
            input_tokens=self.input_tokens + self.rehearsed_input_tokens,
            output_tokens=self.output_tokens + self.rehearsed_output_tokens,
            rehearsed_calls=0,
            rehearsed_input_tokens=0,
            rehearsed_output_tokens=0,
        )

    def __add__(self, other: "Usage") -> "Usage":
        if self is NO_USAGE:
            return other
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            written_tokens=self.written_tokens + other.written_tokens,
            usd=self.usd + other.usd,
            calls=self.calls + other.calls,
            unpriced=self.unpriced + other.unpriced,
            estimated=self.estimated + other.estimated,
            tool_calls=self.tool_calls + other.tool_calls,
            seconds=self.seconds + other.seconds,
            rehearsed_calls=self.rehearsed_calls + other.rehearsed_calls,
            rehearsed_input_tokens=self.rehearsed_input_tokens + other.rehearsed_input_tokens,
            rehearsed_output_tokens=self.rehearsed_output_tokens + other.rehearsed_output_tokens,
        )


class FullUsage(Usage, frozen=True, kw_only=True, omit_defaults=False):
    """Model usage as it is sent to users: with all of its fields, also those that are 0."""

    @classmethod
    def of(cls, usage: Usage) -> "FullUsage":
        """Return the same usage with all of its fields."""
        return convert(usage, cls, from_attributes=True)


NO_USAGE = Usage()


def sum_usage(usages: Iterable[Usage]) -> Usage:
    """Return the sum of several usage records."""
    return sum(usages, NO_USAGE)
