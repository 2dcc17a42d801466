"""Parse tool calls that a model wrote as text, because the model or its server does not support the tool interface.

A reply is treated as tool calls only if it contains nothing else, except that sentences may precede calls in
`<tool_call>` tags. The calls can be bare, fenced, or in the markup of open-weight models. An answer that contains JSON,
or that shows what a call looks like, is still an answer.

This module only parses text. Whether a call is allowed is decided elsewhere, as for all calls.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from ...values.json import Json, JsonSchema

LONGEST_WRITTEN_CALL = 1_000_000
LONGEST_LITERAL = 100_000
"""The maximum length of arguments that are parsed as a Python literal if they are not JSON."""

_CALL_START = re.compile(r"\s*(?:[\[{<`]|Action:|You may call one or more functions)")
_FENCE_LINE = re.compile(r"^[ \t]*```", re.MULTILINE)
_TAG_LINE = re.compile(r"^<tool_calls?>", re.MULTILINE)
_BETWEEN = re.compile(
    r"[\s,;]+|```[\w-]*|</?(?:tool_calls?|function_calls?)>|<\|/?(?:python_tag|tool_calls?)\|>|\[/?TOOL_CALLS\]"
    r"|<｜tool▁calls?▁(?:begin|end)｜>|<\|im_end\|>|Action:"
)
"""Text that may surround calls: whitespace, separators, fences, and the markup of open-weight models."""
_TEMPLATE = re.compile(
    r"</?tools>|</?tool_response>|You may call one or more functions to assist with the user query\."
)
"""Parts of the prompt templates of open-weight models, which a model may repeat in its reply."""
_HEADED = re.compile(
    r"(?:function<｜tool▁sep｜>(?P<old>[\w.-]+)|(?P<new>[\w.-]+)<｜tool▁sep｜>|(?P<mistral>[\w.-]+)\[ARGS\])\s*(?:```\w*\s*)?(?=[{])"
)
"""A tool name followed by the JSON object with the arguments."""
_ELEMENT = re.compile(
    r"<function=(?P<equals>[\w.-]+)>(?P<body>.*?)</function>"
    r"|<invoke\s+name=\"(?P<invoke>[\w.-]+)\"\s*>(?P<inside>.*?)</invoke>"
    r"|<function\s+name=\"(?P<name>[\w.-]+)\"\s+arguments=\"(?P<arguments>.*?)\"\s*(?:/>|>\s*</function>)",
    re.DOTALL,
)
_PARAMETER = re.compile(
    r"<parameter(?:=|\s+name=\")(?P<name>[\w.-]+)\"?>[ \t]*\r?\n?(?P<value>.*?)\r?\n?[ \t]*</parameter>", re.DOTALL
)
_NAMED = re.compile(
    r"""["'](?:name|tool|tool_name|function|action)["']\s*:\s*["'](?:functions\.)?(?P<key>[\w.-]+)["']"""
    r"""|<function(?:=|\s+name=")(?P<element>[\w.-]+)|<invoke\s+name="(?P<invoke>[\w.-]+)\""""
    r"""|<｜tool▁sep｜>\s*(?P<old>[\w.-]+)|(?P<headed>[\w.-]+)(?:<｜tool▁sep｜>|\[ARGS\])"""
)
_NAME_KEYS = ("name", "tool", "tool_name", "function", "action")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "tool_input", "action_input")
_OTHER_KEYS = {"type", "id", "index", "call_id", "tool_call_id", "thought", "thoughts", "reasoning"}
"""Keys that a call may have besides its tool and its arguments."""
_NOT_LETTERS = re.compile(r"[\W\d_]+")
_decoder = json.JSONDecoder(strict=False)


class WrittenCall(Struct, frozen=True, kw_only=True):
    """A call in the text of a reply; `source` is the text of the call.

    `unreadable` is the argument text as written, if it is not an object. If `is_untyped` is true, all arguments are
    strings, because the format does not distinguish types. If `is_certain` is true, the format alone shows that this is
    a call; otherwise it is one only if there is a tool with this name.
    """

    name: str
    arguments: dict[str, Any] = {}
    unreadable: str = ""
    is_untyped: bool = False
    is_certain: bool = True
    source: str = ""


class WrittenReply(Struct, frozen=True, kw_only=True):
    """A reply that consists of tool calls written as text. `prose` is the text before the first call, if any."""

    calls: tuple[WrittenCall, ...]
    prose: str = ""


def read_written_reply(text: str, tools: Mapping[str, JsonSchema]) -> WrittenReply | None:
    """Return the calls in a reply that consists only of calls, or None for any other reply.

    If the calls are in `<tool_call>` tags, the reply may also contain sentences before them. At least one call must be
    to a tool in `tools`, which maps the names of the offered tools to the JSON schemas of their arguments.
    """
    if not tools or not _may_be_call(text):
        return None
    prose, body = _split_prose(text)
    try:
        items = list(_iter_items(body))
    except _NotCalls:
        return None
    calls = tuple(_with_types(item, tools) for item in items if isinstance(item, WrittenCall))
    if not any(call.name in tools for call in calls):
        return None
    if not all(call.is_certain or call.name in tools for call in calls):
        return None
    return WrittenReply(calls=calls, prose=prose)


def find_unreadable_call(text: str, tools: Collection[str]) -> str | None:
    """Return the name of the tool that a reply tries to call, if the reply is only a call with a broken format."""
    if not tools or not _may_be_call(text):
        return None
    try:
        list(_iter_items(_split_prose(text)[1]))
    except _BrokenCall as error:
        names = (next(filter(None, found.groups())) for found in _NAMED.finditer(error.rest))
        return next((name for name in names if name in tools), None)
    except _NotCalls:
        pass
    return None


def is_machine_text(text: str) -> bool:
    """Return whether the text contains nothing but tool calls, tool descriptions or tool results.

    Such a text is never an answer, whichever tools it names.
    """
    if not _may_be_call(text):
        return False
    prose, body = _split_prose(text)
    try:
        items = list(_iter_items(body))
    except _BrokenCall as error:
        # A repeated prompt template is machine text even if a description or call in it cannot be decoded.
        return not prose and _TEMPLATE.match(body) is not None and _NAMED.search(error.rest) is not None
    except _NotCalls:
        return False
    return not prose and bool(items) and all(not isinstance(item, WrittenCall) or item.is_certain for item in items)


def was_shown(call: WrittenCall, texts: Iterable[str]) -> bool:
    """Return whether one of these texts contains the call.

    Only letters are compared, because layout, line numbers and wrapping may differ.
    """
    whole = _keep_letters(call.source)
    arguments = _keep_letters(json.dumps(call.arguments, ensure_ascii=False) if call.arguments else call.unreadable)
    name = _keep_letters(call.name)
    wanted = {whole, *(f"{name}{key}{arguments}" for key in map(_keep_letters, _ARGUMENT_KEYS)), f"{name}{arguments}"}
    if not arguments:
        wanted = {whole}
    return any(one in shown for shown in map(_keep_letters, texts) for one in wanted)


def _keep_letters(text: str) -> str:
    return _NOT_LETTERS.sub("", text)


# Reading a reply


class _NotCalls(Exception):
    """The text contains something other than calls."""


class _BrokenCall(_NotCalls):
    """The text contains something that begins like a call but cannot be decoded; `rest` starts there."""

    def __init__(self, rest: str) -> None:
        super().__init__()
        self.rest = rest


class _Echo:
    """A tool description or tool result repeated by the model."""


_ECHO = _Echo()


def _may_be_call(text: str) -> bool:
    if _CALL_START.match(text) is None and "\n<tool_call" not in text:
        return False
    return len(text) <= LONGEST_WRITTEN_CALL


def _split_prose(text: str) -> tuple[str, str]:
    """Return the sentences before the first `<tool_call>` tag at the start of a line, and the rest."""
    text = text.strip()
    prose = ""
    # A tag inside a fence is quoted. An odd number of fence lines before the tag means that a fence is open.
    if (tag := _TAG_LINE.search(text)) is not None and not len(_FENCE_LINE.findall(text, 0, tag.start())) % 2:
        prose, text = text[: tag.start()].strip(), text[tag.start() :]
        if prose.startswith(("{", "[", "<", "```")):
            prose, text = "", f"{prose}\n{text}"
    return prose, text


def _iter_items(body: str) -> Iterator[WrittenCall | _Echo]:
    """Yield the calls and echoes in the text, which must contain nothing else. Raise _NotCalls for any other text."""
    place = 0
    while place < len(body):
        if (between := _BETWEEN.match(body, place)) is not None:
            place = between.end()
        elif (template := _TEMPLATE.match(body, place)) is not None:
            yield _ECHO
            place = template.end()
        elif (element := _ELEMENT.match(body, place)) is not None:
            yield _read_element(element)
            place = element.end()
        elif (headed := _HEADED.match(body, place)) is not None:
            arguments, end = _decode_json(body, headed.end())
            name = next(filter(None, headed.groups()))
            yield _make_call({"name": name, "arguments": arguments}, body[place:end])
            place = end
        elif body[place] in "{[":
            value, end = _decode_json(body, place)
            for call in _unwrap_calls(value):
                yield _make_call(call, body[place:end])
            place = end
        else:
            raise _BrokenCall(body[place:]) if body.startswith(("<function", "<invoke"), place) else _NotCalls


def _decode_json(body: str, place: int) -> tuple[Any, int]:
    """Decode the JSON value at this position, possibly in doubled braces. Return it and the position after it."""
    start = place + 1 if body.startswith("{{", place) else place
    try:
        value, end = _decoder.raw_decode(body, start)
    except (ValueError, RecursionError):
        raise _BrokenCall(body[place:]) from None
    while end < len(body) and isinstance(value, dict) and body[end] == "}":
        end += 1
    return value, end


def _unwrap_calls(value: Any) -> Iterator[Any]:
    """Yield the items of a list, the `tool_calls` of an object, or else the value itself."""
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    if isinstance(value, list):
        if not value:
            raise _NotCalls
        yield from value
    else:
        yield value


def _make_call(value: Any, source: str) -> WrittenCall | _Echo:
    """Return the call that a JSON value describes, or an _Echo if the value is a tool description or result.

    Raise _NotCalls for any other value.
    """
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict):
        raise _NotCalls
    if value.get("type") == "tool_response":
        return _ECHO
    name_key = next((key for key in _NAME_KEYS if isinstance(value.get(key), str)), None)
    argument_key = next((key for key in _ARGUMENT_KEYS if key in value), None)
    if name_key is None:
        raise _NotCalls
    arguments = {} if argument_key is None else value[argument_key]
    if _is_schema(arguments):
        return _ECHO
    if value.keys() - {name_key, argument_key, *_OTHER_KEYS}:
        raise _NotCalls
    name = value[name_key].removeprefix("functions.")
    is_certain = argument_key in ("arguments", "parameters")
    return _read_arguments(name, arguments, source, is_certain=is_certain)


def _is_schema(arguments: Json) -> bool:
    return isinstance(arguments, dict) and isinstance(arguments.get("properties"), dict)


def _read_arguments(name: str, arguments: Any, source: str, *, is_certain: bool = True) -> WrittenCall:
    """Return the call. `arguments` can be an object, or text that contains a JSON object or a Python dict."""
    found = arguments
    if isinstance(arguments, str):
        found = _decode_object(arguments) if arguments.strip() else {}
    if found is None and not isinstance(arguments, str):
        found = {}
    if isinstance(found, dict) and all(isinstance(key, str) for key in found):
        return WrittenCall(name=name, arguments=found, is_certain=is_certain, source=source)
    unreadable = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return WrittenCall(name=name, unreadable=unreadable, is_certain=is_certain, source=source)


def _decode_object(text: str) -> Any:
    try:
        return _decoder.decode(text)
    except (ValueError, RecursionError):
        pass
    try:
        found = ast.literal_eval(text) if len(text) <= LONGEST_LITERAL else None
        return json.loads(json.dumps(found))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def _read_element(element: re.Match[str]) -> WrittenCall:
    if (name := element["name"]) is not None:
        return _read_arguments(name, element["arguments"].replace("&quot;", '"'), element[0])
    inside = element["body"] or element["inside"] or ""
    found = {one["name"]: one["value"] for one in _PARAMETER.finditer(inside)}
    name = element["equals"] or element["invoke"]
    if not found and inside.strip():
        raise _BrokenCall(element[0])
    return WrittenCall(name=name, arguments=found, is_untyped=True, source=element[0])


def _with_types(call: WrittenCall, tools: Mapping[str, JsonSchema]) -> WrittenCall:
    """Return the call with its untyped arguments decoded as JSON, except where the tool's schema allows a string."""
    if not call.is_untyped:
        return call
    properties = tools.get(call.name, {}).get("properties", {})
    arguments = {key: _decode_typed(value, properties.get(key, {})) for key, value in call.arguments.items()}
    return WrittenCall(name=call.name, arguments=arguments, source=call.source)


def _decode_typed(value: str, schema: Any) -> Any:
    kinds = schema.get("type") if isinstance(schema, dict) else None
    if kinds == "string" or (isinstance(kinds, list) and "string" in kinds):
        return value
    try:
        return _decoder.decode(value.strip())
    except (ValueError, RecursionError):
        return value
