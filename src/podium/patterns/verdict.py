"""Verdicts: what a judge's reply says about the work, and keeping others' words from passing for one.

Sentinels and scores are read from the judge's own reply only. Whatever workers wrote goes
through `neutralise` before a judge or a parser sees it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct

from .dispatch import END, MARKER

GROUP_COMPLETE = "[[GROUP_REFLECT_COMPLETE]]"
NEEDS_ITERATION = "[[NEEDS_ITERATION]]"
COMPLETE = "[[REFLECTION_COMPLETE]]"

NO_FEEDBACK = "No specific feedback provided"
UNSCORED = 0.5
MOST_OBJECTS = 200
"""So many places in a reply are tried as the beginning of a JSON object."""

Trend = Literal["improving", "stable", "degrading"]


class Score(Struct, frozen=True):
    """How good the work is, from 0 to 1, and why."""

    score: float
    rationale: str


class PassFail(Struct, frozen=True):
    """Whether the work passes; `feedback` where it does not."""

    passed: bool
    feedback: str | None


def is_complete(text: str, group: bool = True) -> bool:
    """Whether the judge says that the goal is met, and not also that it needs another iteration."""
    return _has_sentinel(GROUP_COMPLETE if group else COMPLETE, text) and not _has_sentinel(NEEDS_ITERATION, text)


def needs_iteration(text: str) -> bool:
    """Whether the judge says that the work needs another iteration."""
    return _has_sentinel(NEEDS_ITERATION, text)


def strip_verdict(text: str) -> str:
    """What a judge's reply says about the work, without its verdict and what it says is missing."""
    kept: list[str] = []
    for line in text.splitlines():
        if _has_sentinel(NEEDS_ITERATION, line):
            break
        if not _has_sentinel(GROUP_COMPLETE, line) and not _has_sentinel(COMPLETE, line):
            kept.append(line)
    return "\n".join(kept).strip()


def self_score(text: str, group: bool = True) -> float:
    """The score of a reply that judges by sentinels alone."""
    if _has_sentinel(NEEDS_ITERATION, text):
        return 0.4
    return 1.0 if is_complete(text, group) else 0.7


def parse_score(text: str) -> Score:
    """The score and the rationale of an evaluator's reply, labelled or as a JSON object."""
    told = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    for found in (
        _parse_score_object(told, whole=True),
        _parse_score_label(_SCORE_LINE, told),
        _parse_score_object(told, whole=False),
    ):
        if found is not None:
            return Score(found.score, found.rationale or text)
    loose = _parse_score_label(_SCORE, told)
    return Score(UNSCORED if loose is None else loose.score, _parse_rationale(told) or text)


def parse_pass_fail(text: str) -> PassFail:
    """A one-word verdict: PASS, or FAIL with its reason."""
    bare = text.strip(_SPACE_AND_EMPHASIS)
    if _PASS.match(bare):
        return PassFail(True, None)
    if (failed := _FAIL.match(bare)) is None:
        return PassFail(False, text)
    rest = bare[failed.end() :].lstrip(_SPACE_AND_EMPHASIS)
    if not rest.strip(".!"):
        return PassFail(False, NO_FEEDBACK)
    if not rest.startswith(":"):
        return PassFail(False, text)
    lines = [line.strip() for line in rest[1:].strip(_SPACE_AND_EMPHASIS).splitlines()]
    return PassFail(False, " ".join(line for line in lines if line) or NO_FEEDBACK)


def feedback(text: str) -> str:
    """What a judge wants done next: what follows its needs-iteration sentinel, else its last lines."""
    told = text.replace("\r\n", "\n").replace("\r", "\n")
    if (sentinel := _LINES[NEEDS_ITERATION].search(told)) is None:
        return _last_lines(told)
    return MARKER.split(told[sentinel.end() :], maxsplit=1)[0].strip()


def describe_missing(text: str) -> str:
    """What the next plan should know of a judge's reply: its feedback, or what it said before a bare sentinel."""
    return feedback(text) or _last_lines(strip_verdict(text))


def trend(scores: Sequence[float]) -> Trend:
    """Where the last two scores lead."""
    if len(scores) < 2:
        return "stable"
    change = round(scores[-1] - scores[-2], 9)
    return "improving" if change > 0.1 else "degrading" if change < -0.1 else "stable"


def neutralise(text: str) -> str:
    """`text` with everything that would read as a sentinel or as part of a plan visibly broken."""
    text = _ANY_SENTINEL.sub(lambda found: f"(quoted: {found[1]})", text)
    for marker in (MARKER, END):
        text = marker.sub(lambda found: f"@ {found[0][1:]}", text)
    return text


# --- sentinels

_BLANK = r"[ \t\v\f\xa0\u2000-\u200a\u202f\u205f\u3000\ufeff]"


def _compile_line_pattern(pattern: str) -> re.Pattern[str]:
    """What matches `pattern` alone on its line."""
    return re.compile(rf"^(?:{_BLANK}|[*_])*+{pattern}(?:{_BLANK}|[*_])*+$", re.IGNORECASE | re.MULTILINE | re.ASCII)


_LINES = {
    sentinel: _compile_line_pattern(re.escape(sentinel)) for sentinel in (GROUP_COMPLETE, NEEDS_ITERATION, COMPLETE)
}
_NAMES = "|".join(re.escape(sentinel.strip("[]")) for sentinel in _LINES)
_ANY_SENTINEL = re.compile(rf"\[\[({_NAMES})\]\]", re.IGNORECASE | re.ASCII)
_ANY_LINE = _compile_line_pattern(_ANY_SENTINEL.pattern)


def _has_sentinel(sentinel: str, text: str) -> bool:
    """Whether a sentinel stands alone on a line."""
    return _LINES[sentinel].search(text.replace("\r\n", "\n").replace("\r", "\n")) is not None


def _last_lines(text: str) -> str:
    return "\n".join(text.strip().split("\n")[-5:])


# --- scores

_AROUND = r"[ \t*_`\[(<\"'~=]*+"
_VALUE = (
    rf"score\b[*_ \t]*+:{_AROUND}"
    r"(?P<number>[-+]?(?:\d{1,30}(?:[.,]\d*+)?|[.,]\d++)(?:e[-+]?\d{1,4})?)"
    r"[*_`]*+[ \t]*+(?P<of>%|/[ \t]*+\d{1,30}(?:\.\d*+)?)?"
)
_SCORE_LINE = re.compile(rf"^[ \t>*_\#`-]*{_VALUE}", re.IGNORECASE | re.MULTILINE)
_SCORE = re.compile(rf"\b{_VALUE}", re.IGNORECASE)
_RATIONALE = re.compile(r"\brationale\b[*_ \t]*+:[*_]*+", re.IGNORECASE)
_SPACE_AND_EMPHASIS = " \t\r\n*_`\xa0\ufeff"
_PASS = re.compile(r"pass(?![\w/|-])", re.IGNORECASE)
_FAIL = re.compile(r"fail(?![\w/|-])", re.IGNORECASE)
_decoder = json.JSONDecoder(strict=False)


def _parse_score_label(pattern: re.Pattern[str], text: str) -> Score | None:
    """The first labelled score, with its rationale, empty where there is none."""
    if (found := pattern.search(text)) is None:
        return None
    value = _parse_number(found["number"].replace(",", "."))
    if value is None:
        return None
    if of := found["of"]:
        whole = 100.0 if of == "%" else _parse_number(of[1:].strip()) or 1.0
        value /= whole
    return Score(_clamp_score(value), _parse_rationale(text, score=found.start()))


def _parse_rationale(text: str, *, score: int = 0) -> str:
    """What follows the label up to a sentinel, or up to the place of the score where that comes later."""
    if (label := _RATIONALE.search(text)) is None:
        return ""
    limit = score if score > label.start() else len(text)
    end = _ANY_LINE.search(text, label.end())
    return text[label.end() : min(end.start(), limit) if end else limit].strip()


def _parse_score_object(text: str, *, whole: bool) -> Score | None:
    """The score that a JSON object gives: one that is the whole reply, or the first one in it."""
    for found in _find_json_objects(text.strip(), whole=whole):
        told = {str(key).casefold(): value for key, value in found.items()}
        if "score" in told:
            value, why = told["score"], told.get("rationale")
            number = None if isinstance(value, bool) else _parse_number(value)
            score = UNSCORED if number is None else _clamp_score(number)
            return Score(score, why.strip() if isinstance(why, str) else "")
    return None


def _find_json_objects(text: str, *, whole: bool) -> Iterator[dict[str, Any]]:
    place = 0
    for _ in range(1 if whole else MOST_OBJECTS):
        if (place := text.find("{", place)) < 0 or (whole and place):
            return
        try:
            found, place = _decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            place += 1
            continue
        if isinstance(found, dict) and (not whole or place == len(text)):
            yield found


def _parse_number(value: object) -> float | None:
    """`value` as a number, where it is one."""
    try:
        number = float(value) if isinstance(value, str | int | float) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _clamp_score(number: float) -> float:
    return min(1.0, max(0.0, number))
