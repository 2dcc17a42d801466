"""Parse a judge's verdict, and prevent other agents' text from being mistaken for one.

Sentinels and scores are read from the judge's own reply only. Text written by workers goes through `neutralise`
before a judge or a parser sees it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct, structs

from ..values.json import JsonObject
from .dispatch import END, MARKER

GROUP_COMPLETE = "[[GROUP_REFLECT_COMPLETE]]"
NEEDS_ITERATION = "[[NEEDS_ITERATION]]"
COMPLETE = "[[REFLECTION_COMPLETE]]"

NO_FEEDBACK = "No specific feedback provided"
EMPTY_REPLY = "The evaluator's reply is empty"
UNSCORED = 0.5
MOST_OBJECTS = 200
"""Maximum number of positions in a reply that are tried as the start of a JSON object."""

Trend = Literal["improving", "stable", "degrading"]


class Score(Struct, frozen=True):
    """The quality of the work, from 0 to 1, and the reason.

    If `is_clamped` is true, the number in the reply was not between 0 and 1, so its scale is unknown. If
    `is_unreadable` is true, the reply has a score that is not a number; `parse_score` does not set it.
    """

    score: float
    rationale: str
    is_clamped: bool = False
    is_unreadable: bool = False


class PassFail(Struct, frozen=True):
    """Whether the work passes, and the feedback if it does not."""

    passed: bool
    feedback: str | None


def is_complete(text: str, group: bool = True) -> bool:
    """Return whether a reply claims completion. A reply that consists only of sentinels does not count."""
    return claims_completion(text, group) and bool(strip_verdict(text))


def claims_completion(text: str, group: bool = True) -> bool:
    """Return whether the judge says that the goal is met. A reply that also asks for more work does not count."""
    return _has_sentinel(GROUP_COMPLETE if group else COMPLETE, text) and not needs_iteration(text)


def needs_iteration(text: str) -> bool:
    """Return whether the judge asks for another iteration, with or without text after the sentinel."""
    return _has_sentinel(NEEDS_ITERATION, text)


def is_only_sentinels(text: str) -> bool:
    """Return whether the text contains sentinels and nothing else. The last one may be cut off."""
    if "[[" not in text or _ANY_SENTINEL.search(text) is None:
        return False
    return not _CUT_SENTINEL.sub("", _ANY_SENTINEL.sub("", text)).strip(" \t\r\n*_`")


def strip_verdict(text: str) -> str:
    """Return a judge's reply without its verdict and its list of missing items."""
    kept: list[str] = []
    for line in text.splitlines():
        if needs_iteration(line):
            break
        if not _has_sentinel(GROUP_COMPLETE, line) and not _has_sentinel(COMPLETE, line):
            kept.append(line)
    return "\n".join(kept).strip()


def self_score(text: str, group: bool = True) -> float:
    """Return the score that a reply's sentinels imply."""
    if needs_iteration(text):
        return 0.4
    return 1.0 if is_complete(text, group) else 0.7


def parse_score(text: str) -> Score:
    """Return the score and rationale in an evaluator's reply. If it has no score, the score is UNSCORED."""
    told = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    found = _find_score(text) or Score(UNSCORED, _parse_rationale(told) or text)
    return structs.replace(found, is_unreadable=False)


def find_usable_score(text: str) -> Score | None:
    """Return the score in an evaluator's reply, or None if there is none between 0 and 1 (`8/10` and `80 %` are)."""
    found = _find_score(text)
    return None if found is None or found.is_clamped or found.is_unreadable else found


def _find_score(text: str) -> Score | None:
    """Return the score and rationale in an evaluator's reply, or None if it has no score.

    The reply contains labelled lines or a JSON object.
    """
    told = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    for found in (
        _parse_score_object(told, whole=True),
        _parse_score_label(_SCORE_LINE, told),
        _parse_score_object(told, whole=False),
    ):
        if found is not None:
            return structs.replace(found, rationale=found.rationale or text)
    loose = _parse_score_label(_SCORE, told)
    return None if loose is None else structs.replace(loose, rationale=_parse_rationale(told) or text)


def parse_pass_fail(text: str) -> PassFail:
    """Parse a one-word verdict: PASS, or FAIL with a reason."""
    bare = text.strip(_SPACE_AND_EMPHASIS)
    if _PASS.match(bare):
        return PassFail(True, None)
    if not bare:
        return PassFail(False, EMPTY_REPLY)
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
    """Return the judge's feedback: the text after the needs-iteration sentinel, or else the reply's last lines."""
    told = text.replace("\r\n", "\n").replace("\r", "\n")
    if (sentinel := _LINES[NEEDS_ITERATION].search(told)) is None:
        return _last_lines(told)
    return MARKER.split(told[sentinel.end() :], maxsplit=1)[0].strip()


def describe_missing(text: str) -> str:
    """Return what is missing according to a judge: the feedback or, if there is none, the text before the sentinel."""
    return feedback(text) or _last_lines(strip_verdict(text))


def trend(scores: Sequence[float]) -> Trend:
    """Return the trend of the last two scores."""
    if len(scores) < 2:
        return "stable"
    change = round(scores[-1] - scores[-2], 9)
    return "improving" if change > 0.1 else "degrading" if change < -0.1 else "stable"


def neutralise(text: str) -> str:
    """Visibly change every sentinel and plan marker in `text`, so that no parser recognises it."""
    text = _ANY_SENTINEL.sub(lambda found: f"(quoted: {found[1]})", text)
    for marker in (MARKER, END):
        text = marker.sub(lambda found: f"@ {found[0][1:]}", text)
    return text


# --- sentinels

_BLANK = r"[ \t\v\f\xa0\u2000-\u200a\u202f\u205f\u3000\ufeff]"


def _compile_line_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a regular expression for a line that contains only `pattern`, apart from blanks and emphasis marks."""
    return re.compile(rf"^(?:{_BLANK}|[*_])*+{pattern}(?:{_BLANK}|[*_])*+$", re.IGNORECASE | re.MULTILINE | re.ASCII)


_LINES = {sentinel: _compile_line_pattern(re.escape(sentinel)) for sentinel in (GROUP_COMPLETE, COMPLETE)}
_LINES[NEEDS_ITERATION] = re.compile(
    rf"^(?:{_BLANK}|[*_])*+{re.escape(NEEDS_ITERATION)}(?:{_BLANK}|[*_:])*+",
    re.IGNORECASE | re.MULTILINE | re.ASCII,
)
"""The patterns that match sentinels, keyed by sentinel.

A completion sentinel must be alone on its line; the needs-iteration sentinel can be followed by text."""
_NAMES = "|".join(re.escape(sentinel.strip("[]")) for sentinel in _LINES)
_ANY_SENTINEL = re.compile(rf"\[\[({_NAMES})\]\]", re.IGNORECASE | re.ASCII)
_CUT_SENTINEL = re.compile(r"\[\[\w*\]?\Z")
_ANY_LINE = _compile_line_pattern(_ANY_SENTINEL.pattern)
_INLINE = re.compile(rf"[*_]{{0,3}}{_ANY_SENTINEL.pattern}", re.IGNORECASE | re.ASCII)


def _has_sentinel(sentinel: str, text: str) -> bool:
    """Return whether `text` contains a sentinel at a valid position."""
    return _LINES[sentinel].search(text.replace("\r\n", "\n").replace("\r", "\n")) is not None


def _last_lines(text: str) -> str:
    return "\n".join(text.strip().split("\n")[-5:])


# --- scores

_AROUND = r"[ \t*_`\[(<\"'~=]*+"
_VALUE = (
    rf"score\b[*_ \t]*+:{_AROUND}"
    r"(?P<number>[-+]?(?:\d{1,30}(?:[.,]\d*+)?|[.,]\d++)(?:e[-+]?\d{1,4})?)(?![.,]?\d)"
    r"[*_`]*+[ \t]*+(?P<of>%|percent\b|(?:/|\(?(?:out[ \t]+)?of\b)[ \t*_`]*+(?P<whole>\d{1,30}(?:\.\d++)?))?"
)
_SCORE_LINE = re.compile(rf"^[ \t>*_\#`-]*{_VALUE}", re.IGNORECASE | re.MULTILINE)
_SCORE = re.compile(rf"\b{_VALUE}", re.IGNORECASE)
_RATIONALE = re.compile(r"\brationale\b[*_ \t]*+:[*_]*+", re.IGNORECASE)
_SPACE_AND_EMPHASIS = " \t\r\n*_`\xa0\ufeff"
_PASS = re.compile(r"pass(?![\w/|-])", re.IGNORECASE)
_FAIL = re.compile(r"fail(?![\w/|-])", re.IGNORECASE)
_SCALE_KEYS = ("max", "max_score", "maximum", "scale", "out_of", "of", "total")
"""The keys under which an object names the highest score."""
_decoder = json.JSONDecoder(strict=False)


def _parse_score_label(pattern: re.Pattern[str], text: str) -> Score | None:
    """Return the first labelled score with its rationale, which may be empty."""
    if (found := pattern.search(text)) is None:
        return None
    value = _read_label(found)
    return None if value is None else _make_score(value, _parse_rationale(text, score=found.start()))


def _read_label(found: re.Match[str]) -> float | None:
    """Return the number in a labelled score, divided by its scale, if it has one."""
    value = _parse_number(found["number"].replace(",", "."))
    if value is None or not found["of"]:
        return value
    return value / (100.0 if found["whole"] is None else _parse_number(found["whole"]) or 1.0)


def _parse_rationale(text: str, *, score: int = 0) -> str:
    """Return the text after the rationale label, up to a sentinel or to a score that follows the label."""
    if (label := _RATIONALE.search(text)) is None:
        return ""
    sentinels = (pattern.search(text, label.end()) for pattern in (_ANY_LINE, _INLINE))
    ends = [found.start() for found in sentinels if found]
    limit = score if score > label.start() else len(text)
    return text[label.end() : min([limit, *ends])].strip()


def _parse_score_object(text: str, *, whole: bool) -> Score | None:
    """Return the score in the first JSON object that has one. If `whole`, the object must be the whole reply."""
    for found in _find_json_objects(text.strip(), whole=whole):
        told = {str(key).casefold(): value for key, value in found.items()}
        if "score" in told:
            number, why = _read_json_score(told), told.get("rationale")
            rationale = why.strip() if isinstance(why, str) else ""
            if number is None:
                return Score(UNSCORED, rationale, is_unreadable=True)
            return _make_score(number, rationale)
    return None


def _read_json_score(told: JsonObject) -> float | None:
    """Return the number in an object's `score`, which may be text such as `8/10`, on the object's scale."""
    value = told["score"]
    if isinstance(value, str) and (found := _SCORE.fullmatch(f"score: {value.strip()}")) is not None and found["of"]:
        return _read_label(found)
    number = None if isinstance(value, bool) else _parse_number(value)
    wholes = (_parse_number(told[key]) for key in _SCALE_KEYS if key in told and not isinstance(told[key], bool))
    whole = next((one for one in wholes if one is not None and one > 0), None)
    return number if number is None or whole is None else number / whole


def _find_json_objects(text: str, *, whole: bool) -> Iterator[JsonObject]:
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
    """Return `value` as a finite number, or None."""
    try:
        number = float(value) if isinstance(value, str | int | float) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _make_score(number: float, rationale: str) -> Score:
    return Score(min(1.0, max(0.0, number)), rationale, is_clamped=not 0.0 <= number <= 1.0)
