"""Define the calls that show what a model can do, and judge the replies. All functions in this module are pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec
from msgspec import Struct

from ..core.engine import Tool, ToolAnswer
from ..core.scope import Scope
from ..values.errors import OutsideFailed
from ..values.event import ToolUse
from ..values.json import Json, JsonSchema
from .model.model_wire import Message, ModelCall
from .model.written_call import read_written_reply

MOST_TOKENS = 1024
"""The token limit for each reply. Models that reason first need more tokens than the few words requested."""

CONCURRENCY_TOKENS = 32
"""The token limit for timed replies. It is low enough that every reply is cut to the same length."""

PROMPT_TOKENS = 200
"""An upper bound on the number of prompt tokens in each of these calls."""

Verdict = Literal["yes", "no", "unknown"]

STREAMING = "streaming"
SPEED = "speed"
SYSTEM_PROMPT = "system prompt"
NATIVE_CALLS = "native tool calls"
WRITTEN_CALLS = "tool calls as text"
JSON_SCHEMA = "JSON schema"
WINDOW = "context window"
CONCURRENCY = "concurrency"
PROBES = (STREAMING, SPEED, SYSTEM_PROMPT, NATIVE_CALLS, WRITTEN_CALLS, JSON_SCHEMA, WINDOW, CONCURRENCY)
"""The probes, in the order they are run."""

TOOL_NAME = "report_weather"
CITY = "Oslo"
CODE_WORD = "marmalade"
COLOURS = ["blue", "green", "red"]
SCHEMA: JsonSchema = {
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": COLOURS}, "percent": {"type": "integer"}},
    "required": ["colour", "percent"],
    "additionalProperties": False,
}

REJECTIONS = frozenset((400, 404, 405, 415, 422, 500, 501))
"""The status codes that servers return for a field that they do not support. Some servers even return 500."""


class ProbeResult(Struct, frozen=True, kw_only=True):
    """The result of a probe: a verdict and an explanation."""

    probe: str
    verdict: Verdict
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReply:
    """The reply to a probe, with its timing.

    `pieces` is the number of pieces of text or reasoning that arrived, `first_seconds` the time until the first of
    them, and `seconds` the time until the end. `is_cut` says whether the call was stopped at its time
    limit.
    """

    text: str = ""
    calls: tuple[ToolUse, ...] = ()
    pieces: int = 0
    first_seconds: float | None = None
    seconds: float = 0.0
    output_tokens: int = 0
    is_cut: bool = False
    error: OutsideFailed | None = None


class ServerReport(Struct, frozen=True, kw_only=True):
    """A model's context window in tokens, and the source that reports it."""

    window: int
    source: str


# The calls


async def _refuse_call(use: ToolUse, scope: Scope) -> ToolAnswer:
    raise NotImplementedError("probes do not execute tools")


WEATHER_TOOL = Tool(
    name=TOOL_NAME,
    description="Report the weather in a city.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
        "required": ["city", "degrees"],
    },
    answer=_refuse_call,
)


def make_probe_call(model: str, probe: str) -> ModelCall:
    """Return the call for a probe."""
    system, request = _PROMPTS[probe]
    return ModelCall(
        agent="probe",
        model=model,
        system=system,
        messages=(Message(role="user", text=request),),
        tools=(WEATHER_TOOL,) if probe == NATIVE_CALLS else (),
        schema=SCHEMA if probe == JSON_SCHEMA else None,
        max_tokens=CONCURRENCY_TOKENS if probe == CONCURRENCY else MOST_TOKENS,
    )


_COUNTING = "Count from 1 to 40, with a space between the numbers. Write nothing else."
_PROMPTS = {
    STREAMING: ("", _COUNTING),
    SYSTEM_PROMPT: (
        f"The code word is {CODE_WORD}. If you are asked for the code word, reply with it.",
        "What is the code word?",
    ),
    NATIVE_CALLS: (
        "You have a tool. Use it if you are asked to.",
        f"Call the tool {TOOL_NAME} with the city {CITY} and 7 degrees.",
    ),
    WRITTEN_CALLS: (
        f"You can call the tool {TOOL_NAME}, which has the arguments city (a string) and degrees (an integer). To call "
        'it, reply with one JSON object and nothing else: {"name": TOOL, "arguments": {…}}',
        f"Call the tool {TOOL_NAME} with the city {CITY} and 7 degrees.",
    ),
    # The request asks for a sentence, so the reply is JSON only if the server enforces the schema.
    JSON_SCHEMA: ("", "What colour is the sky, and how sure are you, as a percentage? Reply with one short sentence."),
    CONCURRENCY: ("", _COUNTING),
}


# The judgement


def judge_streaming(reply: ProbeReply) -> ProbeResult:
    """Judge whether a long reply arrived in pieces."""
    if reply.pieces == 0 or (reply.pieces == 1 and reply.is_cut):
        return _make_unknown(STREAMING, reply)
    if reply.pieces == 1:
        return ProbeResult(probe=STREAMING, verdict="no", text="the whole reply arrived at once")
    return ProbeResult(probe=STREAMING, verdict="yes", text=f"the reply arrived in {reply.pieces} pieces")


def compute_speed(reply: ProbeReply) -> float | None:
    """Return the tokens per second of a reply, or None if it has no tokens."""
    if reply.first_seconds is None or not reply.output_tokens:
        return None
    # The time to the first token includes processing the prompt, so it is subtracted from the total time. If the reply
    # came in one piece, no other time is known.
    seconds = reply.seconds - reply.first_seconds if reply.pieces > 1 else reply.seconds
    return round(reply.output_tokens / max(seconds, 0.001), 1)


def judge_speed(reply: ProbeReply) -> ProbeResult:
    """Describe how fast a long reply arrived."""
    speed = compute_speed(reply)
    if speed is None:
        return _make_unknown(SPEED, reply)
    text = f"{speed:g} tokens/s, first token after {reply.first_seconds:.1f} s"
    return ProbeResult(probe=SPEED, verdict="yes", text=text)


def judge_system_prompt(reply: ProbeReply) -> ProbeResult:
    """Judge whether the model replied with the code word, which only the system prompt contains."""
    if CODE_WORD in reply.text.casefold():
        return ProbeResult(probe=SYSTEM_PROMPT, verdict="yes", text="the model follows the system prompt")
    if not reply.text.strip() or reply.is_cut:
        return _make_unknown(SYSTEM_PROMPT, reply)
    return ProbeResult(probe=SYSTEM_PROMPT, verdict="no", text="the model ignores the system prompt")


def judge_native_calls(reply: ProbeReply) -> ProbeResult:
    """Judge whether the model called the offered tool through the tool interface of the API."""
    if _is_rejection(reply.error):
        return ProbeResult(probe=NATIVE_CALLS, verdict="no", text=f"the server rejects tools: {reply.error}")
    named = [call for call in reply.calls if call.name == TOOL_NAME]
    if any(call.arguments.get("city") == CITY for call in named):
        return ProbeResult(probe=NATIVE_CALLS, verdict="yes", text="the model calls tools through the API")
    if named:
        return ProbeResult(probe=NATIVE_CALLS, verdict="no", text="the arguments of the call were wrong")
    if _calls_in_text(reply):
        return ProbeResult(probe=NATIVE_CALLS, verdict="no", text="the model writes the call as text instead")
    if not reply.text.strip() or reply.is_cut:
        return _make_unknown(NATIVE_CALLS, reply)
    return ProbeResult(probe=NATIVE_CALLS, verdict="no", text="the model replies with prose instead of a call")


def judge_written_calls(reply: ProbeReply) -> ProbeResult:
    """Judge whether a reply is a tool call that was written as text."""
    if _calls_in_text(reply):
        return ProbeResult(probe=WRITTEN_CALLS, verdict="yes", text="the model makes tool calls that Podium can parse")
    if not reply.text.strip() or reply.is_cut:
        return _make_unknown(WRITTEN_CALLS, reply)
    return ProbeResult(probe=WRITTEN_CALLS, verdict="no", text="the reply is not a call that Podium can read")


def judge_json_schema(reply: ProbeReply) -> ProbeResult:
    """Judge whether the server enforced the schema of the reply."""
    if _is_rejection(reply.error):
        return ProbeResult(probe=JSON_SCHEMA, verdict="no", text=f"the server rejects response_format: {reply.error}")
    if not reply.text.strip() or reply.is_cut:
        return _make_unknown(JSON_SCHEMA, reply)
    try:
        value = msgspec.json.decode(reply.text)
    except msgspec.DecodeError:
        return ProbeResult(probe=JSON_SCHEMA, verdict="no", text="the server ignores response_format")
    if not _matches_schema(value):
        return ProbeResult(probe=JSON_SCHEMA, verdict="no", text="the reply is JSON, but does not match the schema")
    return ProbeResult(probe=JSON_SCHEMA, verdict="yes", text="the server enforces the schema of a reply")


def judge_window(report: ServerReport | None) -> ProbeResult:
    """Describe the context window."""
    if report is None:
        text = "not found on the server or in the price list"
        return ProbeResult(probe=WINDOW, verdict="unknown", text=text)
    return ProbeResult(probe=WINDOW, verdict="yes", text=f"{report.window:,} tokens, according to {report.source}")


def count_concurrent(seconds: Mapping[int, float]) -> int:
    """Return how many concurrent calls a server can answer.

    `seconds` maps a number of concurrent calls (1, 2, 4, …) to the time until all of them were answered. The result is
    the largest of these numbers for which every doubling up to it increased the time by less than half.
    """
    number = 1
    while number * 2 in seconds and seconds[number * 2] < seconds[number] * 1.5:
        number *= 2
    return number


def judge_concurrency(seconds: Mapping[int, float], failed: ProbeReply | None = None) -> ProbeResult:
    """Describe how many concurrent calls the server can answer. `failed` is a reply that ended the measurement."""
    if 2 not in seconds:
        return _make_unknown(CONCURRENCY, failed or ProbeReply())
    number = count_concurrent(seconds)
    times = f"{seconds[1]:.1f} s for one call, {seconds[max(number, 2)]:.1f} s for {max(number, 2)} at once"
    answers = f"{number} calls at once" if number > 1 else "only one call at a time"
    return ProbeResult(
        probe=CONCURRENCY, verdict="yes" if number > 1 else "no", text=f"the server answers {answers} ({times})"
    )


def make_skipped(probe: str, why: str) -> ProbeResult:
    """Return the result for a probe that was not run."""
    return ProbeResult(probe=probe, verdict="unknown", text=f"not tested: {why}")


def _make_unknown(probe: str, reply: ProbeReply) -> ProbeResult:
    if reply.error is not None:
        text = str(reply.error)
    elif reply.is_cut:
        text = f"no complete reply within {reply.seconds:.2g} s"
    else:
        text = "the reply was empty"
    return ProbeResult(probe=probe, verdict="unknown", text=text)


def _is_rejection(error: OutsideFailed | None) -> bool:
    return error is not None and error.status in REJECTIONS and not error.is_unknown_model


def _calls_in_text(reply: ProbeReply) -> bool:
    return read_written_reply(reply.text, {TOOL_NAME: {}}) is not None


def _matches_schema(value: Json) -> bool:
    if not isinstance(value, dict) or set(value) != {"colour", "percent"}:
        return False
    is_integer = isinstance(value["percent"], int) and not isinstance(value["percent"], bool)
    return value["colour"] in COLOURS and is_integer
