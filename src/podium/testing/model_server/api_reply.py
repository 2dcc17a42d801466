"""Define the interface of the APIs that the model server provides, and turn a scripted move into a response."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ...core.engine import Tool, ToolAnswer
from ...core.scope import Scope
from ...engines.model.model_wire import ModelCall
from ...engines.script import Fails, MoveAttempt, split_text
from ...values.event import ToolUse
from ...values.json import JsonObject, JsonSchema
from .http_connection import STREAM_END, STREAM_HEAD, TimedResponse, build_json_response, encode


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A parsed request. `wants_usage` is true if the reply must contain the usage.

    `namespaces` maps the names of tools in scripts to their namespaces; tools without a namespace are left out.
    """

    call: ModelCall
    is_streaming: bool
    wants_usage: bool = True
    namespaces: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReply:
    """A reply from a script, and the request that it answers. `number` makes the reply's id unique."""

    attempt: MoveAttempt
    request: ModelRequest
    number: int


class ReplyRenderer(Protocol):
    """Renders a reply in the format of one API: as one document, or as an opening, pieces of text and an ending."""

    def render_document(self) -> JsonObject: ...

    def render_opening(self) -> bytes: ...

    def render_piece(self, text: str) -> bytes: ...

    def render_ending(self) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelApi:
    """One API: its path, and how it reads the key, parses requests, formats errors and renders replies."""

    path: str
    read_api_key: Callable[[Mapping[str, str]], str]
    parse_request: Callable[[bytes, str], ModelRequest]
    format_error: Callable[[int, str], object]
    make_renderer: Callable[[ScriptedReply], ReplyRenderer]

    def build_error_response(self, status: int, message: str) -> TimedResponse:
        """Return the response for an error."""
        return build_json_response(status, self.format_error(status, message))

    def _build_scripted_error(self, fails: Fails) -> TimedResponse:
        """Return the response for a scripted error, with its headers and the fields of its body."""
        document = self.format_error(fails.status, fails.message)
        if fails.error and isinstance(document, dict):
            document = document | {"error": document["error"] | fails.error}
        headers = {} if fails.retry_after is None else {"Retry-After": f"{fails.retry_after:g}"}
        return build_json_response(fails.status, document, headers=headers | fails.headers)

    def build_response(self, reply: ScriptedReply) -> TimedResponse:
        """Return the response for a reply, including this attempt's fault, if any."""
        move, fault = reply.attempt.move, reply.attempt.fault
        if fault == "silent":
            return TimedResponse(parts=())
        if fault == "fails" and move.fails is not None:
            response = self._build_scripted_error(move.fails)
            return TimedResponse(parts=response.parts, delay=move.delay)
        renderer = self.make_renderer(reply)
        return (
            _build_stream_response(renderer, reply.attempt)
            if reply.request.is_streaming
            else _build_document_response(renderer, reply.attempt)
        )


def _build_document_response(renderer: ReplyRenderer, attempt: MoveAttempt) -> TimedResponse:
    document = encode(renderer.render_document())
    if attempt.fault == "garbled" and not attempt.move.calls:
        document = document[: len(document) // 2]
    sent = build_json_response(200, document).parts[0]
    breaks = attempt.fault == "half"
    return TimedResponse(
        parts=[sent[: -(len(document) // 2)] if breaks else sent], delay=attempt.move.delay, breaks=breaks
    )


def _build_stream_response(renderer: ReplyRenderer, attempt: MoveAttempt) -> TimedResponse:
    """Return a response with one part for each text piece, or a single part if there is no delay between pieces."""
    move = attempt.move
    parts = [renderer.render_piece(text) for text in split_text(attempt)] or [b""]
    parts[0] = STREAM_HEAD + renderer.render_opening() + parts[0]
    breaks = attempt.fault == "half"
    if not breaks:
        parts[-1] += renderer.render_ending() + STREAM_END
    return TimedResponse(
        parts=parts if move.pace else [b"".join(parts)], delay=move.delay, pace=move.pace, breaks=breaks
    )


def make_caller_tool(name: str, description: str, parameters: JsonSchema) -> Tool:
    """Return a placeholder for one of the caller's tools, which this server cannot run."""
    return Tool(name=name, description=description, parameters=parameters, answer=_refuse_tool_call)


async def _refuse_tool_call(use: ToolUse, scope: Scope) -> ToolAnswer:
    return ToolAnswer(text=f"This server cannot run {use.name}; the client must run it.", is_error=True)
