"""Test what a model can do by calling it. Every call has a time limit, and so does the whole test."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from anyio import CancelScope, create_task_group, move_on_after
from msgspec import structs

from ..core.engine import Reasoning, Text
from ..values.errors import OutsideFailed
from ..values.event import ToolUse
from ..values.model_abilities import ModelAbilities
from . import model_probes as probes
from .engine_choice import ModelAddress, make_wire
from .inline_reasoning import separate_reasoning
from .model import model_prices
from .model.conversation import CHARACTERS_A_TOKEN
from .model.model_wire import ModelCall, ReplyEnd, ReplyPart, ToolCallPart, Wire
from .model_probes import ProbeReply, ProbeResult, ServerReport, make_probe_call

if TYPE_CHECKING:
    from aiohttp import ClientSession

TEST_SECONDS = 60.0
METADATA_SECONDS = 3.0
MOST_CONCURRENT = 8


@dataclass(frozen=True, slots=True)
class ProbeLimits:
    """The time limits for a test, in seconds.

    `whole` is the limit for the entire test. Each other limit is a fraction of `whole` and applies to one reply.
    """

    whole: float = TEST_SECONDS

    @property
    def first_token(self) -> float:
        """The time limit for the first reply to start. A local server may have to load the model first."""
        return self.whole / 2

    @property
    def reading(self) -> float:
        """How long to keep reading the first reply after it starts. This is long enough to measure the speed."""
        return self.whole / 6

    @property
    def call(self) -> float:
        """The time limit for each reply after the first."""
        return self.whole / 5


class ModelProber:
    """Tests one model. `report` is called with each result, and `announce` with the name of the next probe."""

    def __init__(
        self,
        client: ClientSession,
        address: ModelAddress,
        key: str,
        *,
        limits: ProbeLimits,
        report: Callable[[ProbeResult], None],
        announce: Callable[[str], None] = lambda probe: None,
    ) -> None:
        self._client = client
        self._address = address
        self._key = key
        self._wire = make_wire(address.provider, address.url, key, lambda: client, takes_schema=True)
        self._limits = limits
        self._report = report
        self._announce = announce
        self._abilities = ModelAbilities()
        self._results: dict[str, ProbeResult] = {}

    async def probe(self) -> ModelAbilities:
        """Run all probes within the time limit, and return their results.

        Raise OutsideFailed if the failure of the first call means that no other call can succeed.
        """
        why = "the test reached its time limit"
        with move_on_after(self._limits.whole):
            if await self._probe_streaming():
                await self._probe_calls()
                await self._probe_window()
                await self._probe_concurrency()
            else:
                why = "the server does not reply"
        for probe in probes.PROBES:
            if probe not in self._results:
                self._add_result(probes.make_skipped(probe, why))
        return self._abilities

    async def _probe_streaming(self) -> bool:
        """Measure a long reply. Return False if the server sent nothing in time: further probes would be useless."""
        self._announce(probes.STREAMING)
        limits = self._limits
        reply = await _measure_call(
            self._wire, self._make_call(probes.STREAMING), seconds=limits.first_token, reading=limits.reading
        )
        if reply.error is not None and _is_final(reply.error):
            raise reply.error
        result = probes.judge_streaming(reply)
        self._add_result(result, streaming=_as_bool(result))
        self._add_result(
            probes.judge_speed(reply),
            tokens_per_second=probes.compute_speed(reply),
            first_token_seconds=None if reply.first_seconds is None else round(reply.first_seconds, 2),
        )
        return reply.pieces > 0 or not reply.is_cut

    async def _probe_calls(self) -> None:
        """Test whether the model supports system prompts, tool calls and JSON schemas."""
        result = probes.judge_system_prompt(await self._call(probes.SYSTEM_PROMPT))
        self._add_result(result, system_prompt=_as_bool(result))
        native = await self._call(probes.NATIVE_CALLS)
        result = probes.judge_native_calls(native)
        self._add_result(result, native_calls=_as_bool(result))
        written = probes.judge_written_calls(native)
        if written.verdict != "yes":
            written = probes.judge_written_calls(await self._call(probes.WRITTEN_CALLS))
        self._add_result(written, written_calls=_as_bool(written))
        if self._address.provider.wire != "openai":
            self._add_result(
                probes.make_skipped(probes.JSON_SCHEMA, "with this API, Podium passes the schema as a tool")
            )
            return
        result = probes.judge_json_schema(await self._call(probes.JSON_SCHEMA))
        self._add_result(result, json_schema=_as_bool(result))

    async def _probe_window(self) -> None:
        """Get the context window from the server or, failing that, from the price list."""
        from .model.http_wire import find_proxy  # imported here to keep start-up fast: it imports aiohttp
        from .server_metadata import fetch_context_window

        self._announce(probes.WINDOW)
        address = self._address
        report: ServerReport | None = None
        if address.provider.wire == "openai":
            with move_on_after(METADATA_SECONDS):
                report = await fetch_context_window(
                    self._client,
                    address.url,
                    address.model,
                    headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
                    is_own_server=address.provider.key_name is None,
                    proxy=find_proxy(address.url),
                )
        known = None if report else model_prices.find_context_window(address.provider.name, address.model)
        report = ServerReport(window=known, source="the price list") if known else report
        self._add_result(probes.judge_window(report), window=None if report is None else report.window)

    async def _probe_concurrency(self) -> None:
        """Measure how many concurrent calls the server can answer.

        Time one call, then two concurrent calls, then four, and so on. Stop when the calls take much longer than the
        previous ones, when a call fails, or when the maximum is reached.
        """
        self._announce(probes.CONCURRENCY)
        first, second = [await self._call(probes.CONCURRENCY) for _ in range(2)]
        failed = _find_failed([first, second])
        # The first call may be slower, because later calls benefit from the server's cache.
        seconds = {1: min(first.seconds, second.seconds)} if failed is None else {}
        most = MOST_CONCURRENT if self._address.provider.key_name is None else 2
        while failed is None and probes.count_concurrent(seconds) == max(seconds) < most:
            number = max(seconds) * 2
            failed = await self._time_together(number, seconds)
        result = probes.judge_concurrency(seconds, failed)
        shown = None if result.verdict == "unknown" else probes.count_concurrent(seconds)
        self._add_result(result, concurrent=shown)

    async def _time_together(self, number: int, seconds: dict[int, float]) -> ProbeReply | None:
        """Make `number` concurrent calls.

        If all calls succeed, store the elapsed time in `seconds` and return None. Otherwise, return a failed reply.
        """
        replies: list[ProbeReply] = []

        async def make_call() -> None:
            replies.append(await self._call(probes.CONCURRENCY))

        started_at = monotonic()
        async with create_task_group() as group:
            for _ in range(number):
                group.start_soon(make_call)
        failed = _find_failed(replies)
        if failed is None:
            seconds[number] = monotonic() - started_at
        return failed

    async def _call(self, probe: str) -> ProbeReply:
        if probe != probes.CONCURRENCY:
            self._announce(probe)
        return await _measure_call(self._wire, self._make_call(probe), seconds=self._limits.call)

    def _make_call(self, probe: str) -> ModelCall:
        return make_probe_call(self._address.model, probe)

    def _add_result(self, result: ProbeResult, **shown: float | bool | None) -> None:
        self._results[result.probe] = result
        self._abilities = structs.replace(self._abilities, **shown)
        self._report(result)


async def _measure_call(wire: Wire, call: ModelCall, *, seconds: float, reading: float | None = None) -> ProbeReply:
    """Make a call and return its reply with its timing, or with the error if the call failed. Stop after `seconds`.

    If `reading` is given, `seconds` limits only the wait for the first piece, and the rest of the reply is read for at
    most `reading` seconds.
    """
    meter = _ReplyMeter()
    error: OutsideFailed | None = None
    with CancelScope(deadline=meter.started_at + seconds) as scope:
        try:
            async with aclosing(wire.stream(call)) as parts:
                async for part in parts:
                    is_first = meter.pieces == 0
                    meter.add_part(part)
                    if is_first and meter.pieces and reading is not None:
                        scope.deadline = monotonic() + reading
        except OutsideFailed as failure:
            error = failure
    is_cut = scope.cancelled_caught
    ended_at = scope.deadline if is_cut else monotonic()
    return meter.build_reply(ended_at - meter.started_at, is_cut=is_cut, error=error)


class _ReplyMeter:
    """Collects the parts of a reply and records when the first part arrived."""

    def __init__(self) -> None:
        self.started_at = monotonic()
        self.pieces = 0
        self._texts: list[str] = []
        self._calls: list[ToolUse] = []
        self._first_seconds: float | None = None
        self._tokens = 0

    def add_part(self, part: ReplyPart) -> None:
        match part:
            case Text() | Reasoning() if part.text:
                self.pieces += 1
                self._tokens += -(-len(part.text) // CHARACTERS_A_TOKEN)
                if isinstance(part, Text):
                    self._texts.append(part.text)
                if self._first_seconds is None:
                    self._first_seconds = monotonic() - self.started_at
            case ToolCallPart():
                self._calls.append(part.call)
            case ReplyEnd():
                self._tokens = part.usage.output_tokens or self._tokens

    def build_reply(self, seconds: float, *, is_cut: bool, error: OutsideFailed | None) -> ProbeReply:
        return ProbeReply(
            text=separate_reasoning("".join(self._texts)).text,
            calls=tuple(self._calls),
            pieces=self.pieces,
            first_seconds=self._first_seconds,
            seconds=seconds,
            output_tokens=self._tokens,
            is_cut=is_cut,
            error=error,
        )


def _find_failed(replies: list[ProbeReply]) -> ProbeReply | None:
    # A reply with tokens but without text has not failed: the model may have used all its tokens for hidden reasoning.
    return next((one for one in replies if one.error or one.is_cut or not (one.pieces or one.output_tokens)), None)


def _is_final(error: OutsideFailed) -> bool:
    """Return whether a failure of the first call means that no other call can succeed."""
    is_stopped = error.status is None and not error.retryable
    return error.status in (401, 403) or error.is_unknown_model or is_stopped


def _as_bool(result: ProbeResult) -> bool | None:
    return None if result.verdict == "unknown" else result.verdict == "yes"
