"""Parsing of streamed replies: packets into server-sent events, and events into tool calls.

The wires interpret the events. Nothing here waits or knows about connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from ...values.errors import OutsideFailed
from ...values.event import ToolUse
from ...values.usage import Usage
from .model_wire import ReplyPart

LONGEST_LINE = 16 * 2**20
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

FailureFactory = Callable[..., OutsideFailed]
"""Builds the failure of one provider: its name is put in front, and its key is redacted."""

encode = msgspec.json.Encoder().encode


class ReplyParser(Protocol):
    """Parses one reply: takes bytes, split anywhere by the network, and returns reply parts.

    `stop` is the stop reason, empty until the reply has ended. `is_done` is true when there is
    nothing more to read.
    """

    stop: str
    is_done: bool

    def feed(self, data: bytes) -> Iterator[ReplyPart]:
        """Yield the parts that these bytes complete."""
        ...

    def finish_reply(self) -> Iterator[ReplyPart]:
        """Yield the remaining parts, including the end of the reply. Raise OutsideFailed if the reply is incomplete."""
        ...


class SSEParser:
    """Assembles server-sent events from packets. Only the data is used, which is one line for each event.

    Some servers answer a streaming request with one JSON document: then `is_document` is true, and
    the document is the only event.
    """

    def __init__(self, make_failure: FailureFactory) -> None:
        self.is_document = False
        self._has_begun = False
        self._make_failure = make_failure
        self._tail: list[bytes] = []
        self._tail_size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the events that these bytes complete."""
        if not self._has_begun:
            if not (start := data.lstrip()):
                return []
            self._has_begun = True
            self.is_document = start.startswith(b"{")
        end = 0 if self.is_document else data.rfind(b"\n") + 1
        if not end:
            self._buffer_tail(data)
            return []
        lines = data[:end]
        if self._tail:
            lines = b"".join(self._tail) + lines
            self._tail.clear()
            self._tail_size = 0
        if end < len(data):
            self._buffer_tail(data[end:])
        return _extract_data(lines)

    def finish_stream(self) -> list[bytes]:
        """Return the events that the end of the stream completes."""
        rest = b"".join(self._tail)
        return [rest] if self.is_document else _extract_data(rest)

    def _buffer_tail(self, data: bytes) -> None:
        self._tail.append(data)
        self._tail_size += len(data)
        if self._tail_size > LONGEST_LINE:
            raise self._make_failure(f"sent a line of more than {LONGEST_LINE} bytes")


def _extract_data(lines: bytes) -> list[bytes]:
    return [event for line in lines.split(b"\n") if line.startswith(b"data:") and (event := line[5:].strip())]


def estimate_usage(sent: int, said: int) -> Usage:
    """Estimate the usage of a call whose server reports none: about four characters per token."""
    return Usage(input_tokens=-(-sent // 4), output_tokens=-(-said // 4), calls=1, estimated=1)


class PartialToolCall:
    """A tool call that is not complete yet."""

    __slots__ = ("arguments", "extra", "id", "name")

    def __init__(self, id: str = "", name: str = "") -> None:
        self.id = id
        self.name = name
        self.arguments = ""
        self.extra: Any = None


def build_tool_uses(partial_calls: Sequence[PartialToolCall], *, place: int) -> list[ToolUse]:
    """Return the tool calls of a reply. A missing id is derived from the reply's position in the conversation."""
    ids: list[str] = []
    for n, one in enumerate(partial_calls):
        ids.append(one.id if one.id and one.id not in ids else f"call-{place}-{n}")
    return [parse_tool_use(id, one.name, one.arguments) for id, one in zip(ids, partial_calls, strict=True)]


def parse_tool_use(id: str, name: str, arguments: str) -> ToolUse:
    """Parse a tool call whose arguments came as text."""
    if not arguments.strip():
        return ToolUse(id=id, name=name)
    try:
        return ToolUse(id=id, name=name, arguments=_decode_arguments(arguments) or {})
    except NOT_JSON:
        return ToolUse(id=id, name=name, unreadable=arguments)


_decode_arguments = msgspec.json.Decoder(dict[str, Any] | None).decode
