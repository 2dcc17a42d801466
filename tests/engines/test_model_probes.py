"""What the replies to the probes of a model mean. The judgement is pure, so each case is one row."""

from __future__ import annotations

import pytest

from podium.engines.model_probes import (
    CODE_WORD,
    PROBES,
    PROMPT_TOKENS,
    TOOL_NAME,
    ProbeReply,
    ServerReport,
    compute_speed,
    count_concurrent,
    judge_concurrency,
    judge_json_schema,
    judge_native_calls,
    judge_speed,
    judge_streaming,
    judge_system_prompt,
    judge_window,
    judge_written_calls,
    make_probe_call,
)
from podium.values.errors import OutsideFailed
from podium.values.event import ToolUse

SILENT = ProbeReply(is_cut=True, seconds=12.0)
EMPTY = ProbeReply()
REJECTED = ProbeReply(error=OutsideFailed("x returned 400: unknown field", status=400))
BUSY = ProbeReply(error=OutsideFailed("x returned 429: slow down", status=429, retryable=True))
NO_MODEL = ProbeReply(error=OutsideFailed("x returned 404: no such model", status=404, is_unknown_model=True))
WRITTEN = f'{{"name": "{TOOL_NAME}", "arguments": {{"city": "Oslo", "degrees": 7}}}}'


def make_call(name: str = TOOL_NAME, **arguments: object) -> ProbeReply:
    return ProbeReply(calls=(ToolUse(id="1", name=name, arguments=arguments),))


@pytest.mark.parametrize(
    ("reply", "verdict", "text"),
    [
        (ProbeReply(text="1 2", pieces=2), "yes", "the reply arrived in 2 pieces"),
        (ProbeReply(text="1 2", pieces=9, is_cut=True), "yes", "the reply arrived in 9 pieces"),
        (ProbeReply(text="1 2", pieces=1), "no", "the whole reply arrived at once"),
        (ProbeReply(text="1", pieces=1, is_cut=True, seconds=30.0), "unknown", "no complete reply within 30 s"),
        (SILENT, "unknown", "no complete reply within 12 s"),
        (EMPTY, "unknown", "the reply was empty"),
        (BUSY, "unknown", "x returned 429: slow down"),
    ],
)
def test_streaming(reply: ProbeReply, verdict: str, text: str) -> None:
    result = judge_streaming(reply)

    assert (result.verdict, result.text) == (verdict, text)


@pytest.mark.parametrize(
    ("reply", "speed"),
    [
        (ProbeReply(pieces=9, first_seconds=2.0, seconds=12.0, output_tokens=70), 7.0),
        (ProbeReply(pieces=1, first_seconds=10.0, seconds=10.0, output_tokens=70), 7.0),
        (ProbeReply(pieces=2, first_seconds=1.0, seconds=1.0, output_tokens=5), 5000.0),
        (ProbeReply(pieces=2, first_seconds=1.0, seconds=2.0), None),
        (SILENT, None),
    ],
)
def test_speed(reply: ProbeReply, speed: float | None) -> None:
    assert compute_speed(reply) == speed
    assert judge_speed(reply).verdict == ("unknown" if speed is None else "yes")


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        (ProbeReply(text=f"The code word is {CODE_WORD.upper()}."), "yes"),
        (ProbeReply(text="I do not know any code word."), "no"),
        (ProbeReply(text="The code", is_cut=True), "unknown"),
        (EMPTY, "unknown"),
        (SILENT, "unknown"),
        (REJECTED, "unknown"),
    ],
)
def test_system_prompt(reply: ProbeReply, verdict: str) -> None:
    assert judge_system_prompt(reply).verdict == verdict


@pytest.mark.parametrize(
    ("reply", "verdict", "text"),
    [
        (make_call(city="Oslo", degrees=7), "yes", "calls tools through the API"),
        (make_call(place="Oslo"), "no", "the arguments of the call were wrong"),
        (make_call("other", city="Oslo"), "unknown", "the reply was empty"),
        (ProbeReply(text=WRITTEN), "no", "writes the call as text instead"),
        (ProbeReply(text=f"```json\n{WRITTEN}\n```"), "no", "writes the call as text instead"),
        (ProbeReply(text="It is 7 degrees in Oslo."), "no", "replies with prose instead of a call"),
        (REJECTED, "no", "the server rejects tools: x returned 400: unknown field"),
        (BUSY, "unknown", "x returned 429: slow down"),
        (NO_MODEL, "unknown", "x returned 404: no such model"),
        (EMPTY, "unknown", "the reply was empty"),
        (SILENT, "unknown", "no complete reply within 12 s"),
    ],
)
def test_native_calls(reply: ProbeReply, verdict: str, text: str) -> None:
    result = judge_native_calls(reply)

    assert (result.verdict, text in result.text) == (verdict, True)


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        (ProbeReply(text=WRITTEN), "yes"),
        (ProbeReply(text=f"<tool_call>{WRITTEN}</tool_call>"), "yes"),
        (ProbeReply(text=WRITTEN.replace(TOOL_NAME, "other")), "no"),
        (ProbeReply(text=WRITTEN[:-9], is_cut=True), "unknown"),
        (ProbeReply(text="Done!"), "no"),
        (EMPTY, "unknown"),
        (REJECTED, "unknown"),
    ],
)
def test_written_calls(reply: ProbeReply, verdict: str) -> None:
    assert judge_written_calls(reply).verdict == verdict


@pytest.mark.parametrize(
    ("reply", "verdict", "text"),
    [
        (ProbeReply(text=' {"colour": "blue", "percent": 99}\n'), "yes", "enforces the schema of a reply"),
        (ProbeReply(text='{"colour": "pink", "percent": 99}'), "no", "does not match the schema"),
        (ProbeReply(text='{"colour": "blue", "percent": true}'), "no", "does not match the schema"),
        (ProbeReply(text='{"colour": "blue", "percent": 9, "why": ""}'), "no", "does not match the schema"),
        (ProbeReply(text="[]"), "no", "does not match the schema"),
        (ProbeReply(text="The sky is blue."), "no", "the server ignores response_format"),
        (ProbeReply(text='{"colour": "bl', is_cut=True), "unknown", "no complete reply"),
        (REJECTED, "no", "the server rejects response_format: x returned 400"),
        (BUSY, "unknown", "429"),
        (EMPTY, "unknown", "the reply was empty"),
    ],
)
def test_json_schema(reply: ProbeReply, verdict: str, text: str) -> None:
    result = judge_json_schema(reply)

    assert (result.verdict, text in result.text) == (verdict, True)


@pytest.mark.parametrize(
    ("seconds", "number", "text"),
    [
        ({1: 1.0, 2: 2.0}, 1, "one call at a time (1.0 s for one call, 2.0 s for 2 at once)"),
        ({1: 1.0, 2: 1.1, 4: 1.2, 8: 2.4}, 4, "4 calls at once (1.0 s for one call, 1.2 s for 4 at once)"),
        ({1: 1.0, 2: 1.1, 4: 1.2, 8: 1.3}, 8, "8 calls at once (1.0 s for one call, 1.3 s for 8 at once)"),
        ({1: 1.0, 2: 1.49}, 2, "2 calls at once"),
        ({1: 1.0}, 1, "the reply was empty"),
        ({}, 1, "the reply was empty"),
    ],
)
def test_concurrency(seconds: dict[int, float], number: int, text: str) -> None:
    assert count_concurrent(seconds) == number
    assert text in judge_concurrency(seconds).text


def test_a_failure_during_the_measurement_of_concurrency_is_told() -> None:
    assert judge_concurrency({1: 1.0}, BUSY).text == "x returned 429: slow down"


def test_the_context_window_is_told_with_its_source() -> None:
    assert judge_window(ServerReport(window=32768, source="the price list")).text == (
        "32,768 tokens, according to the price list"
    )
    assert judge_window(None).verdict == "unknown"


@pytest.mark.parametrize("probe", [one for one in PROBES if one not in ("speed", "context window")])
def test_no_prompt_is_longer_than_the_cost_estimate_assumes(probe: str) -> None:
    call = make_probe_call("m", probe)

    assert len(call.system) + len(call.messages[0].text) < PROMPT_TOKENS * 4 / 2
    assert (bool(call.tools), call.schema is not None) == (probe == "native tool calls", probe == "JSON schema")
