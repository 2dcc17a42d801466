"""What the loop asks of a model: one call, streamed.

A wire is one way of talking to models (a provider's HTTP format, a script). It knows no agent, no
journal and no retry: it makes the call it is given and says what came back.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Literal, Protocol

from msgspec import Struct

from ...core.engine import Reasoning, Text, Tool
from ...values.attachment import Image
from ...values.event import ToolUse
from ...values.usage import NO_USAGE, Usage

IMAGE_CHARACTERS = 6_000
"""What an image counts as, about: providers count by its pixels, and never by its bytes."""


class Message(Struct, frozen=True, kw_only=True):
    """One message of a conversation. `answers` is the id of the call that a tool message answers.

    `sealed` is what came with a reply of the model's, for the same wire and model to see again;
    `model` is whose reply it is. `images` are what the text has marks of.
    """

    role: Literal["user", "assistant", "tool"]
    text: str
    calls: tuple[ToolUse, ...] = ()
    answers: str = ""
    sealed: str = ""
    model: str = ""
    images: tuple[Image, ...] = ()


class ModelCall(Struct, frozen=True, kw_only=True):
    """One call of a model.

    `key` is the same whenever the same step is tried again after a crash; wires send it along as
    the idempotency key. `schema` is the JSON schema that the answer should fit; None for free text.
    """

    agent: str
    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    key: str = ""
    schema: dict[str, Any] | None = None


def estimate_call_size(call: ModelCall, body: bytes) -> int:
    """How many characters a call is, about, whose body this is."""
    images = [image for message in call.messages for image in message.images]
    return len(body) - sum(-(-len(image.data) // 3) * 4 for image in images) + IMAGE_CHARACTERS * len(images)


class ToolCallPart(Struct, frozen=True):
    """The model wants a tool, its arguments complete."""

    call: ToolUse


class ReplyEnd(Struct, frozen=True, kw_only=True):
    """The reply is complete. Always the last thing a wire says.

    `stop` is why, in OpenAI's words: `stop`, `tool_calls`, `length`, `content_filter`, or whatever else
    the server says. `sealed` belongs to the message that the reply becomes: signed thinking and the
    like, which providers want back as it was and nobody else reads.
    """

    stop: str
    usage: Usage = NO_USAGE
    sealed: str = ""


ReplyPart = Text | Reasoning | ToolCallPart | ReplyEnd


class Wire(Protocol):
    """A model that can be called."""

    def stream(self, call: ModelCall) -> AsyncGenerator[ReplyPart]:
        """Make the call. Raises OutsideFailed when it fails, also in the middle of a reply.

        Closing the generator early ends the call.
        """
        ...
