"""Implement OpenAI's Responses API, which Codex uses, for the model server: parse requests and render replies.

Tool calls are rendered as function calls. If a tool is not defined as a function, only the text of the argument `input`
is passed to it. In a script, a tool in a namespace is called `NAMESPACE__TOOL`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Struct

from ...core.engine import Tool
from ...engines.model.model_wire import Message, ModelCall
from ...engines.model.stream_events import parse_tool_use
from ...engines.script import compute_move_usage, make_tool_uses, stop_reason
from ...values.event import ToolUse
from ...values.json import Json, JsonObject, JsonSchema
from .api_reply import ModelApi, ModelRequest, ScriptedReply, make_caller_tool
from .http_connection import encode, encode_chunk


class _Tool(Struct, frozen=True):
    type: str = ""
    name: str = ""
    description: str = ""
    parameters: JsonSchema | None = None
    tools: list[_Tool] | None = None


class _Part(Struct, frozen=True):
    text: str = ""


class _Item(Struct, frozen=True):
    """An item of the conversation: a message, a tool call or the output of a tool call."""

    type: str = "message"
    role: str = ""
    content: str | list[_Part] | None = None
    call_id: str = ""
    name: str = ""
    namespace: str | None = None
    arguments: str = ""
    input: str = ""
    output: str | list[_Part] | None = None


class _Request(Struct, frozen=True):
    model: str
    input: str | list[_Item] = ""
    instructions: str | None = None
    tools: list[_Tool] | None = None
    stream: bool = False
    max_output_tokens: int | None = None


_decode = msgspec.json.Decoder(_Request).decode


def _read_api_key(headers: Mapping[str, str]) -> str:
    return headers.get("authorization", "").removeprefix("Bearer ")


def _parse_request(body: bytes, key: str) -> ModelRequest:
    request = _decode(body)
    items = [_Item(role="user", content=request.input)] if isinstance(request.input, str) else request.input
    ruled = ("system", "developer")
    told = (_join_text(item.content) for item in items if item.role in ruled)
    namespaces = {
        _join_name(space.name, tool.name): space.name for space in request.tools or () for tool in space.tools or ()
    }
    call = ModelCall(
        agent=request.model,
        model=request.model,
        system="\n\n".join(filter(None, (request.instructions, *told))),
        messages=tuple(_parse_messages([item for item in items if item.role not in ruled])),
        tools=tuple(_list_tools(request.tools or [])),
        key=key,
        max_tokens=request.max_output_tokens,
    )
    return ModelRequest(call=call, is_streaming=request.stream, namespaces=namespaces)


def _list_tools(tools: list[_Tool], namespace: str = "") -> Iterator[Tool]:
    for tool in tools:
        if tool.type == "namespace":
            yield from _list_tools(tool.tools or [], tool.name)
        else:
            yield make_caller_tool(_join_name(namespace, tool.name), tool.description, tool.parameters or {})


def _join_name(namespace: str | None, name: str) -> str:
    return f"{namespace}__{name}" if namespace else name


def _parse_messages(items: list[_Item]) -> list[Message]:
    """Return the conversation. Merge the text and the calls of a reply, which are separate items, into one message."""
    messages: list[Message] = []
    is_reply = False
    for item in items:
        if item.type in ("function_call_output", "custom_tool_call_output"):
            messages.append(Message(role="tool", text=_join_text(item.output), answers=item.call_id))
        elif item.type in ("function_call", "custom_tool_call") or item.role == "assistant":
            calls = () if item.role == "assistant" else (_parse_call(item),)
            last = messages.pop() if is_reply else Message(role="assistant", text="")
            text = last.text + _join_text(item.content)
            messages.append(Message(role="assistant", text=text, calls=(*last.calls, *calls)))
        elif item.role:
            messages.append(Message(role="user", text=_join_text(item.content)))
        else:
            continue  # such as reasoning
        is_reply = messages[-1].role == "assistant"
    return messages


def _parse_call(item: _Item) -> ToolUse:
    if item.type == "custom_tool_call":
        return ToolUse(id=item.call_id, name=item.name, arguments={"input": item.input})
    return parse_tool_use(item.call_id, _join_name(item.namespace, item.name), item.arguments)


def _join_text(content: str | list[_Part] | None) -> str:
    parts = content or ""
    return parts if isinstance(parts, str) else "".join(part.text for part in parts)


def _format_error(status: int, message: str) -> object:
    return {"error": {"message": message, "type": "scripted", "code": str(status)}}


class _ResponsesRenderer:
    """Formats a scripted reply as a response from this API."""

    def __init__(self, reply: ScriptedReply) -> None:
        self._attempt = reply.attempt
        self._request = reply.request
        self._id = f"resp-{reply.number}"
        functions = {tool.name for tool in reply.request.call.tools if tool.parameters}
        text: JsonObject = {"type": "output_text", "text": reply.attempt.move.says, "annotations": []}
        self._message: JsonObject = {
            "type": "message",
            "id": f"msg-{reply.number}",
            "role": "assistant",
            "content": [text],
        }
        calls = [
            _encode_tool_use(use, use.name in functions, reply.request.namespaces.get(use.name, ""))
            for use in make_tool_uses(reply.attempt)
        ]
        self._output = [self._message, *calls] if reply.attempt.move.says else calls

    def render_document(self) -> dict[str, Json]:
        move = self._attempt.move
        spent = compute_move_usage(move, self._request.call)
        return {
            "id": self._id,
            "object": "response",
            "model": self._request.call.model,
            "status": "incomplete" if stop_reason(move) == "length" else "completed",
            "output": self._output,
            "usage": {
                "input_tokens": spent.input_tokens,
                "input_tokens_details": {"cached_tokens": spent.cached_tokens},
                "output_tokens": spent.output_tokens,
                "total_tokens": spent.tokens,
            },
        }

    def render_opening(self) -> bytes:
        opening = _encode_event("response.created", response={"id": self._id})
        if not self._attempt.move.says:
            return opening
        return opening + _encode_event("response.output_item.added", item={**self._message, "content": []})

    def render_piece(self, text: str) -> bytes:
        return _encode_event("response.output_text.delta", item_id=self._message["id"], delta=text)

    def render_ending(self) -> bytes:
        document = self.render_document()
        items = b"".join(_encode_event("response.output_item.done", item=item) for item in self._output)
        return items + _encode_event(f"response.{document['status']}", response=document)


def _encode_tool_use(use: ToolUse, is_function: bool, namespace: str) -> JsonObject:
    if not is_function and "input" in use.arguments:
        return {"type": "custom_tool_call", "call_id": use.id, "name": use.name, "input": use.arguments["input"]}
    arguments = use.unreadable or encode(use.arguments).decode()
    call = {"type": "function_call", "call_id": use.id, "name": use.name, "arguments": arguments}
    return call | {"name": use.name.removeprefix(f"{namespace}__"), "namespace": namespace} if namespace else call


def _encode_event(kind: str, **fields: Json) -> bytes:
    return encode_chunk(b"event: %b\ndata: %b\n\n" % (kind.encode(), encode({"type": kind, **fields})))


RESPONSES = ModelApi(
    path="/responses",
    read_api_key=_read_api_key,
    parse_request=_parse_request,
    format_error=_format_error,
    make_renderer=_ResponsesRenderer,
)
