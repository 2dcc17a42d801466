"""Define the interface of provider adapters, which the tool loop uses to call models.

An adapter (`Wire`) is one way to call models, such as a provider's HTTP API or a script. It makes the
call and yields the reply; agents, timelines and retries are handled elsewhere. The function `make_wire` in the
module `X_wire` makes the adapter for the providers whose `wire` is X.

The provider and the settings determine the parameters. The model caller makes the calls.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from ...core.engine import Reasoning, Text, Tool
from ...values.event import ToolUse
from ...values.json import JsonSchema
from ...values.request import Image
from ...values.usage import NO_CALL_LIMITS, NO_USAGE, CallLimits, Usage
from .providers import Provider

if TYPE_CHECKING:
    from aiohttp import ClientSession

    from .tool_emulation import RefusedSchemas

from dataclasses import field

from msgspec import structs

from ...values.model_abilities import UNTESTED, ModelAbilities
from .provider_throttle import ProviderThrottle

DEFAULT_MAX_WAIT = 60.0
"""The longest time in seconds that a call waits for a provider, unless the settings say otherwise."""
ToolCallMode = Literal["auto", "native", "text"]
"""How a model calls tools: through the tool interface (`native`) or in the text of its replies (`text`).

With `auto`, the abilities of the model decide.
"""


def _mark_unpriced(usage: Usage) -> Usage:
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
    add_cost: Callable[[Usage], Usage] = _mark_unpriced
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


IMAGE_CHARACTERS = 6_000
"""The estimated size of an image in characters. Providers count its pixels, never its bytes."""
LONGEST_REPLY = 1_000_000
"""After how many characters a reply is stopped. No model's longest reply comes close to it."""


class Message(Struct, frozen=True, kw_only=True):
    """One message in a conversation. `answers` is the id of the call that a tool message answers.

    `sealed` is provider data from a reply, which is sent back only to the same API and model;
    `model` is the model that replied. `images` contains the images whose markers are in `text`.
    """

    role: Literal["user", "assistant", "tool"]
    text: str
    calls: tuple[ToolUse, ...] = ()
    answers: str = ""
    sealed: str = ""
    model: str = ""
    images: tuple[Image, ...] = ()


class ModelCall(Struct, frozen=True, kw_only=True):
    """One model call.

    `key` stays the same when the same step is repeated after a crash; wires send it as the idempotency key. The key
    also encodes how many replies were left out of the conversation. `schema` is the JSON schema for the answer, or None
    for free text. A call to `schema_tool` is equivalent to an answer that matches the schema; a wire that sends the
    schema need not offer this tool. A reply longer than `max_tokens` is cut off by the provider, with the stop reason
    `length`. If the server sends nothing for longer than `limits` allows, the call fails.
    """

    agent: str
    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    key: str = ""
    schema: JsonSchema | None = None
    schema_tool: str = ""
    max_tokens: int | None = None
    limits: CallLimits = NO_CALL_LIMITS


def make_call_key(step: str, *, left_out: int) -> str:
    """Return the key of a call. `left_out` is the number of replies that were left out of the conversation."""
    return f"{step}+{left_out}" if left_out else step


def read_left_out(key: str) -> int:
    """Extract from a call's key the number of replies that were left out of the conversation."""
    found = _LEFT_OUT.search(key)
    return 0 if found is None else int(found[1])


_LEFT_OUT = re.compile(r"#\d+(?:~\d+)?\+(\d+)$")


def estimate_call_size(call: ModelCall, body: bytes) -> int:
    """Estimate the size of a call in characters from its body, counting each image at a fixed size."""
    images = [image for message in call.messages for image in message.images]
    return len(body) - sum(-(-len(image.data) // 3) * 4 for image in images) + IMAGE_CHARACTERS * len(images)


class ToolCallPart(Struct, frozen=True):
    """A tool call from the model, with complete arguments."""

    call: ToolUse


class ReplyEnd(Struct, frozen=True, kw_only=True):
    """The end of a complete reply; always the last part that an adapter yields.

    `stop` is the stop reason in OpenAI's terms: `stop`, `tool_calls`, `length`, `content_filter`, or
    any other value that the server sends. `sealed` is provider data, such as signed thinking, that is
    stored with the message and sent back unchanged; nothing else reads it. `model` is the model that the
    reply names, or empty if it names none.
    """

    stop: str
    usage: Usage = NO_USAGE
    sealed: str = ""
    model: str = ""


ReplyPart = Text | Reasoning | ToolCallPart | ReplyEnd


class Wire(Protocol):
    """An adapter that calls models."""

    def stream(self, call: ModelCall) -> AsyncGenerator[ReplyPart]:
        """Make the call and yield the reply. Raise OutsideFailed if it fails, even in the middle of a reply.

        Closing the generator early ends the call.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ModelServer:
    """A provider's server that an adapter calls. There is no repr, because it would show the key.

    `get_client` returns the shared HTTP client, which its owner closes. `takes_schema` says whether the server accepts
    schemas for replies, or is None if that has not been tested. If the server refuses a schema, this is recorded in
    `refused_schemas`, and the call is repeated without the schema. If `refused_schemas` is None, the call fails.
    """

    provider: Provider
    url: str
    key: str
    get_client: Callable[[], ClientSession]
    proxy: str | None
    takes_schema: bool | None = None
    refused_schemas: RefusedSchemas | None = None

    @property
    def key_name(self) -> str:
        """What messages call the key."""
        return self.provider.key_name or "a key"


def add_zero_cost(usage: Usage) -> Usage:
    """Return the usage as it is: the model is free, so there is no cost to add."""
    return usage
