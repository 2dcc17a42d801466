"""Collect a model's reply as it arrives, and build the event to record for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec
from msgspec import structs

from ...core.engine import Reasoning, Text, Tool
from ...values.errors import OutsideFailed
from ...values.event import CallCut, CallFailed, ModelReplied, ToolUse
from ...values.plain_text import escape_unprintable, truncate_text
from ...values.request import replace_surrogates
from ...values.usage import Usage
from ..inline_reasoning import ReasoningSplitter, separate_reasoning
from .conversation import CHARACTERS_A_TOKEN, count_characters
from .model_wire import LONGEST_REPLY, ModelCall, ReplyEnd, ReplyPart, ToolCallPart

CHECK_EVERY = 500
"""How many new characters must arrive before a reply is checked again. Each check takes time."""
LEAST_REPEATS = 6
LEAST_CHARACTERS = 2_500
"""With these limits, a reply is stopped before it has repeated itself for 1,000 tokens."""
LEAST_PIECES = 3
"""The minimum length of repeated text, as a multiple of the length of the last piece of the stream.

Because of this minimum, a reply that arrives in one piece is never treated as an endless repetition. Such a reply is
already complete, so there is nothing to stop.
"""
LONGEST_UNIT = 500
"""The maximum length, in characters, of a repeated unit that can be detected."""
_WINDOW = LONGEST_UNIT * LEAST_REPEATS + LONGEST_UNIT
_PROBES = (24, 240)
"""How many characters at the end of the text are used to find the repeated unit.

The distance from these characters to their previous occurrence is the length of the unit. Two numbers are tried,
because a long unit may itself end in a short repetition.
"""
MOST_PIECES = 5_000
"""How many pieces at the end of a reply are checked."""


_DATE = re.compile(r"[-@](\d{4}-\d{2}-\d{2}|\d{8}|\d{6}|\d{4}|\d{3}|\d{2}-\d{2})$")
"""Matches the date or number at the end of a snapshot's name.

Examples are -2025-08-07 in gpt-5-mini-2025-08-07, -20260401 in claude-sonnet-5-5-20260401 and -001 in
gemini-2.0-flash-001.
"""
_LATEST = re.compile(r"[-:]latest$")
ANY_MODEL = frozenset({"auto", "default"})
"""Names that let a server choose the model, such as openrouter/auto."""

LONGEST_MODEL_NAME = 100
REPETITION = "repetition"
"""The stop reason of a reply that was stopped because it repeated itself endlessly."""
ENDLESS = "endless"
"""The stop reason of a reply that was stopped because it was longer than LONGEST_REPLY."""
KEPT_CHARACTERS = 1_000
"""How much of such a reply is kept."""


class ReplyRecorder:
    """Collects a reply as it arrives, and builds the event to record for it.

    Once `is_stopped` is true, the rest of the reply is not needed: the reply only repeats itself, or does not end.
    """

    def __init__(self, call: ModelCall, add_cost: Callable[[Usage], Usage]) -> None:
        self._call = call
        self._add_cost = add_cost
        self._said: list[str] = []
        """The text as the model wrote it, which may contain reasoning."""
        self._thought: list[str] = []
        self._splitter = ReasoningSplitter()
        self._calls: list[ToolUse] = []
        self._characters = 0
        self._unchecked = 0
        """The number of characters since the reply was last checked for repetition."""
        self.is_silent = True
        self.is_stopped = False
        self.end = ReplyEnd(stop="")

    @property
    def shown(self) -> str:
        """The text that `add_part` has returned as the reply so far."""
        return self._splitter.shown

    def add_part(self, part: ReplyPart) -> Sequence[Text | Reasoning]:
        """Add a part of the reply, and return what it adds to the reply and to the reasoning."""
        self.is_silent = False
        match part:
            case Text():
                self._append(self._said, part.text)
                return () if self.is_stopped else self._splitter.add_text(part.text)
            case Reasoning():
                self._append(self._thought, part.text)
                return () if self.is_stopped else (part,)
            case ToolCallPart():
                self._calls.append(part.call)
            case ReplyEnd():
                self.end = part
        return ()

    def _append(self, pieces: list[str], text: str) -> None:
        """Add a piece, and stop the reply if it repeats itself endlessly or does not end."""
        pieces.append(text)
        self._characters += len(text)
        self._unchecked += len(text)
        if self._unchecked >= CHECK_EVERY:
            self._check_repetition(pieces)
        if self._characters > LONGEST_REPLY and not self.is_stopped:
            for kept in (self._said, self._thought):
                kept[:] = ["".join(kept)[:KEPT_CHARACTERS]]
            self.end = ReplyEnd(stop=ENDLESS, usage=self.estimate_usage(estimate_tokens(self._characters)))
            self.is_stopped = True

    def _check_repetition(self, pieces: list[str]) -> None:
        """End the reply if it repeats itself endlessly, and remove the repetitions.

        If only white space is repeated, the text before it counts as a complete reply.
        """
        self._unchecked = 0
        if not (repeated := count_endless(pieces)):
            return
        said = sum(map(len, self._said)) + sum(map(len, self._thought))
        text = "".join(pieces)
        kept = text[:-repeated]
        is_blank = not text[-repeated:].strip()
        pieces[:] = [kept.rstrip() if is_blank else kept]
        stop = "stop" if is_blank and pieces is self._said else REPETITION
        self.end = ReplyEnd(stop=stop, usage=self.estimate_usage(estimate_tokens(said)))
        self.is_stopped = True

    def as_model_replied(self) -> ModelReplied:
        usage = self._add_cost(self.end.usage)
        inline, text = separate_reasoning("".join(self._said))
        return ModelReplied(
            model=self._call.model,
            text=replace_surrogates(text),
            reasoning=replace_surrogates("\n".join(filter(None, ("".join(self._thought), inline)))),
            calls=tuple(self._calls),
            stop=self.end.stop,
            sealed=self.end.sealed,
            replied_model="" if is_same_model(self._call.model, self.end.model) else _shorten_name(self.end.model),
            usage=structs.replace(usage, tool_calls=len(self._calls)) if self._calls else usage,
        )

    def as_call_failed(
        self, error: OutsideFailed, wait: float | None, *, provider: str = "", until: float = 0.0
    ) -> CallFailed:
        usage = self._estimate_spending() if self._said else Usage()
        message = replace_surrogates(str(error))
        return CallFailed(
            model=self._call.model,
            message=message,
            wait=wait,
            is_too_long=error.is_too_long,
            is_unknown_model=error.is_unknown_model,
            usage=usage,
            until=until,
            provider=provider,
        )

    def as_call_cut(self) -> CallCut:
        return CallCut(
            model=self._call.model,
            text=replace_surrogates(separate_reasoning("".join(self._said)).text),
            usage=self._estimate_spending(),
        )

    def estimate_usage(self, output_tokens: int) -> Usage:
        """Estimate the usage of the call, given the number of tokens in its reply."""
        sent = len(self._call.system) + sum(map(count_characters, self._call.messages))
        sent += sum(map(count_tool_characters, self._call.tools))
        tokens = estimate_tokens(sent)
        return Usage(calls=1, input_tokens=tokens, output_tokens=output_tokens, estimated=1)

    def _estimate_spending(self) -> Usage:
        """Estimate the usage and cost of a call that did not complete."""
        said = sum(map(len, self._said))
        return self._add_cost(self.estimate_usage(estimate_tokens(said)))


def _shorten_name(model: str) -> str:
    """Return a model name as one printable line of limited length. The name comes from a reply and can be any text."""
    return truncate_text(escape_unprintable(replace_surrogates(model)), LONGEST_MODEL_NAME)


def estimate_tokens(characters: int) -> int:
    """Estimate the number of tokens from the length of the text."""
    return -(-characters // CHARACTERS_A_TOKEN)


def count_tool_characters(tool: Tool) -> int:
    """Return the total length of a tool's name, description and schema, in characters."""
    return len(tool.name) + len(tool.description) + len(msgspec.json.encode(tool.parameters))


def is_same_model(asked: str, replied: str) -> bool:
    """Return whether a reply that names the model `replied` answers a call for the model `asked`.

    An alias and its dated snapshot are the same model, and so are names with and without a provider prefix, a folder, a
    file extension or a tag. Two different dates are two models.
    """
    ours, theirs = _strip_place(asked), _strip_place(replied)
    if ours == theirs or not theirs or ours in ANY_MODEL:
        return True
    if _LATEST.search(ours):
        # An alias for the newest model of a family: the reply to gemini-flash-latest names gemini-2.5-flash.
        return set(_split_words(_LATEST.sub("", ours))) <= set(_split_words(theirs))
    if ":" not in ours or ":" not in theirs:
        # If only one of the names has a tag, ignore it: llama3 is the same model as llama3:latest, and x as x:free.
        ours, theirs = ours.partition(":")[0], theirs.partition(":")[0]
    return ours == theirs or _DATE.sub("", theirs) == ours or _DATE.sub("", ours) == theirs


def _strip_place(name: str) -> str:
    """Return the name in lower case, without the provider or folder before it and without a file extension."""
    return name.strip().lower().replace("\\", "/").rstrip("/").rpartition("/")[2].removesuffix(".gguf")


def _split_words(name: str) -> list[str]:
    return re.split(r"[-_.:@]", name)


def count_endless(pieces: Sequence[str]) -> int:
    """Return the length of the endless repetition at the end of a streamed reply, or 0 if there is none."""
    if not pieces:
        return 0
    # Large pieces need a larger window: the repetition must be several times as long as a piece.
    window = max(_WINDOW, (LEAST_PIECES + 1) * len(pieces[-1]) + LONGEST_UNIT)
    repeating = _count_repeating("".join(pieces[-MOST_PIECES:])[-window:])
    return repeating if repeating >= LEAST_PIECES * len(pieces[-1]) else 0


def _count_repeating(text: str) -> int:
    """Return the length of the repetition at the end of the text, or 0 if it does not end in a long repetition."""
    if len(text) < LEAST_CHARACTERS:
        return 0
    return max(_count_repeats_of(text, _find_unit(text, probe)) for probe in _PROBES)


def _count_repeats_of(text: str, unit: int) -> int:
    """Return how many characters at the end of the text repeat a unit of length `unit`.

    If the repetition is too short, return 0. The first occurrence of the unit is not counted.
    """
    if not unit:
        return 0
    repeating = unit
    while repeating < len(text) and text[-repeating - 1] == text[-repeating - 1 + unit]:
        repeating += 1
    is_endless = repeating >= LEAST_CHARACTERS and repeating >= unit * LEAST_REPEATS
    return repeating - unit if is_endless else 0


def _find_unit(text: str, probe: int) -> int:
    """Return the length of the unit that may be repeated at the end of the text, or 0 if there is none.

    The length is the distance from the last `probe` characters of the text to their previous occurrence.
    """
    place = text.rfind(text[-probe:], 0, len(text) - 1)
    unit = len(text) - probe - place
    return unit if place >= 0 and unit <= LONGEST_UNIT else 0
