"""A model and the parameters for calling it.

The provider and the settings determine the parameters. The model caller makes the calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from msgspec import structs

from ...values.limits import NO_CALL_LIMITS, CallLimits
from ...values.model_abilities import UNTESTED, ModelAbilities
from ...values.usage import Usage
from .model_wire import Wire
from .provider_throttle import ProviderThrottle

DEFAULT_MAX_WAIT = 60.0
"""The longest time in seconds that a call waits for a provider, unless the settings say otherwise."""

ToolCallMode = Literal["auto", "native", "text"]
"""How a model calls tools: through the tool interface (`native`) or in the text of its replies (`text`).

With `auto`, the abilities of the model decide.
"""


def add_zero_cost(usage: Usage) -> Usage:
    """Return the usage as it is: the model is free, so there is no cost to add."""
    return usage


def mark_unpriced(usage: Usage) -> Usage:
    """Mark the usage as unpriced, for a model whose price is unknown."""
    return structs.replace(usage, unpriced=usage.calls) if usage.calls else usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model that can be called: its adapter, price, throttle, limits, context window and tested abilities.

    `window` returns the size of the context window in tokens, or None if it is unknown. It is called
    only for long conversations, because the first lookup is slow. `max_tokens` limits the length of a reply.
    If the provider accepts no calls for longer than `max_wait` seconds, the model is at its limit. If
    `is_for_limits` is true, it is called only when an earlier model is at its limit. If `is_for_unknown` is true,
    it is called only when the provider of an earlier model has no such model.
    """

    wire: Wire
    name: str = ""
    provider: str = ""
    add_cost: Callable[[Usage], Usage] = mark_unpriced
    throttle: ProviderThrottle = field(default_factory=ProviderThrottle)
    limits: CallLimits = NO_CALL_LIMITS
    window: Callable[[], int | None] = lambda: None
    abilities: ModelAbilities = UNTESTED
    tool_calls: ToolCallMode = "auto"
    max_tokens: int | None = None
    max_wait: float = DEFAULT_MAX_WAIT
    is_for_limits: bool = False
    is_for_unknown: bool = False

    @property
    def label(self) -> str:
        """The provider and the model, as in the settings."""
        return f"{self.provider}:{self.name}" if self.provider else self.name

    @property
    def emulates_tools(self) -> bool:
        """Whether tools are described in the prompt and called in the text of the reply.

        Unless the settings specify this, tools are emulated for a model that does not support the tool interface.
        There is one exception: tools are not emulated if the model writes its calls as text even without emulation, and
        its server is known not to enforce JSON schemas.
        """
        if self.tool_calls != "auto":
            return self.tool_calls == "text"
        able = self.abilities
        return able.native_calls is False and not (able.written_calls and able.json_schema is False)

    @property
    def is_priced(self) -> bool:
        """Whether the price of a call is known."""
        return self.add_cost(Usage(calls=1, input_tokens=1)).unpriced == 0
