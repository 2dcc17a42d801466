"""Parsing a judge's verdict: no other text can pass for one."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.patterns.dispatch import Plan, parse_plan
from podium.patterns.verdict import (
    EMPTY_REPLY,
    NO_FEEDBACK,
    PassFail,
    describe_missing,
    feedback,
    find_usable_score,
    is_complete,
    neutralise,
    parse_pass_fail,
    parse_score,
    self_score,
    trend,
)

GROUP, NEEDS, SINGLE = "[[GROUP_REFLECT_COMPLETE]]", "[[NEEDS_ITERATION]]", "[[REFLECTION_COMPLETE]]"


@pytest.mark.parametrize("line", [GROUP, GROUP.lower(), f"  {GROUP}\t", f"**{GROUP}**", f"_{GROUP}_", f"** {GROUP} **"])
@pytest.mark.parametrize("around", ["Done.\n{}\nBye.", "Done.\r\n{}\r\nBye.", "Done.\r{}"])
def test_a_sentinel_alone_on_its_line_completes(line: str, around: str) -> None:
    assert is_complete(around.format(line))
    assert self_score(around.format(line)) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        GROUP,
        f"\n{GROUP}\n",
        f"It is {GROUP}",
        f"{GROUP} it is",
        f"`{GROUP}`",
        "[[GROUP_REFLECT_COMPLETE]",
        SINGLE,
        f"> {GROUP}",
    ],
)
def test_a_sentinel_that_is_not_alone_completes_nothing(text: str) -> None:
    assert not is_complete(text)
    assert self_score(text) == 0.7


def test_a_byte_order_mark_hides_nothing() -> None:
    assert is_complete(f"\ufeffDone.\n{GROUP}")
    assert is_complete(f"Done.\n\ufeff{SINGLE}", group=False)
    assert self_score(f"\ufeff{NEEDS}\nMore.") == 0.4
    assert feedback(f"\ufeff{NEEDS}\nMore.") == "More."
    assert parse_pass_fail("\ufeffPASS") == PassFail(True, None)
    assert parse_pass_fail("\ufeffFAIL: no tests") == PassFail(False, "no tests")


def test_one_sentinel_does_not_count_as_the_other() -> None:
    assert is_complete(f"Done.\n{SINGLE}", group=False)
    assert not is_complete(f"Done.\n{GROUP}", group=False)
    assert not is_complete(f"Done.\n{SINGLE}")


def test_a_judge_that_wants_more_has_not_completed() -> None:
    both = f"Done.\n{GROUP}\n{NEEDS}"

    assert not is_complete(both)
    assert self_score(both) == self_score(NEEDS) == 0.4
    assert not is_complete(f"Done.\n**{NEEDS}** the tests\n{GROUP}")
    assert feedback(f"Done.\n{NEEDS}: the tests\nand docs") == "the tests\nand docs"


@pytest.mark.parametrize(
    ("text", "score", "rationale"),
    [
        ("SCORE: 0.85\nRATIONALE: Good\nand short.", 0.85, "Good\nand short."),
        ("score: .85\nrationale: Good", 0.85, "Good"),
        ("**SCORE:** 0.85\n**RATIONALE:** Good", 0.85, "Good"),
        ("**Score**: `0.85`\n**Rationale**: Good", 0.85, "Good"),
        (f"SCORE: 0.95\r\nRATIONALE: Good.\r\nReally.\r\n{GROUP}\r\n", 0.95, "Good.\nReally."),
        ("RATIONALE: Good\nSCORE: 1", 1.0, "Good"),
        ("SCORE: 1.7\nRATIONALE: Great", 1.0, "Great"),
        ("SCORE: -3\nRATIONALE: Bad", 0.0, "Bad"),
        ("SCORE: 8/10\nRATIONALE: x", 0.8, "x"),
        ("SCORE: 85%\nRATIONALE: x", 0.85, "x"),
        ("SCORE: high\nRATIONALE: x", 0.5, "x"),
        ("SCORE: nan\nRATIONALE: x", 0.5, "x"),
        ("SCORE: 0.8.5\nRATIONALE: x", 0.5, "x"),
        ("SCORE: 10.8.5", 0.5, "SCORE: 10.8.5"),
        ("SCORE: 0.8.\nRATIONALE: x", 0.8, "x"),
        ("It says SCORE: 0.2 somewhere RATIONALE: x", 0.2, "x"),
        ("He wrote SCORE: 1.0\nSCORE: 0.2\nRATIONALE: x", 0.2, "x"),
        ('{"score": 0.85, "rationale": "Good, not SCORE: 1"}', 0.85, "Good, not SCORE: 1"),
        ('Here:\n```json\n{"Score": "0.85", "Rationale": "Good"}\n```', 0.85, "Good"),
        ('{"score": NaN, "rationale": "x"}', 0.5, "x"),
        ('{"score": true, "rationale": "x"}', 0.5, "x"),
        ("Nothing to say.\n", 0.5, "Nothing to say.\n"),
        ("SCORE: 0.6\nBecause.", 0.6, "SCORE: 0.6\nBecause."),
        (f"SCORE: 0.9\nRATIONALE: It is good. {GROUP} And more.", 0.9, "It is good."),
        (f"SCORE: 0.9\nRATIONALE: It is good. **{NEEDS}**\nMore.", 0.9, "It is good."),
        (f"SCORE: 0.9\nRATIONALE: Good.\n **{NEEDS.lower()}** \nMore.", 0.9, "Good."),
        ("SCORE: 0.9\nRATIONALE: It printed\nScore: 3/5\nand rightly.", 0.9, "It printed\nScore: 3/5\nand rightly."),
        ("RATIONALE: Good\nScore: high is what it says\nSCORE: 0.7", 0.7, "Good\nScore: high is what it says"),
        ('\ufeff{"score": 0.4, "rationale": "not\nSCORE: 1"}', 0.4, "not\nSCORE: 1"),
        (f"SCORE: 0.9\nRATIONALE: Good.\n\ufeff{GROUP}", 0.9, "Good."),
    ],
)
def test_a_score_is_read_with_its_rationale(text: str, score: float, rationale: str) -> None:
    found = parse_score(text)

    assert (found.score, found.rationale) == (score, rationale)


@pytest.mark.parametrize("text", ["SCORE: 8", "SCORE: -0.1", "SCORE: 11/10", '{"score": 85}', "SCORE: 120 %"])
def test_a_score_that_was_clamped_says_so(text: str) -> None:
    assert parse_score(text).is_clamped
    assert not parse_score("SCORE: 8/10").is_clamped


@pytest.mark.parametrize("text", ["PASS", "pass.", "**PASS** well done", "PASS\nFAIL: no", "  PASS - fine"])
def test_a_first_word_pass_passes(text: str) -> None:
    assert parse_pass_fail(text) == PassFail(True, None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("FAIL: no tests\n\n  and no docs", "no tests and no docs"),
        ("**FAIL**: no tests", "no tests"),
        ("", EMPTY_REPLY),
        (" \n", EMPTY_REPLY),
        ("fail", NO_FEEDBACK),
        ("FAIL:", NO_FEEDBACK),
        ("FAIL.", NO_FEEDBACK),
        ("It would PASS", "It would PASS"),
        ("PASSED", "PASSED"),
        ("PASS/FAIL: yes", "PASS/FAIL: yes"),
        ("FAILURE", "FAILURE"),
    ],
)
def test_everything_else_fails_and_says_why(text: str, why: str) -> None:
    assert parse_pass_fail(text) == PassFail(False, why)


def test_feedback_is_what_follows_the_sentinel_up_to_the_next_plan() -> None:
    text = f"Fine so far.\n{NEEDS}\nAdd tests.\nAnd docs.\n\n@worker:alpha write them"

    assert feedback(text) == "Add tests.\nAnd docs."
    assert feedback("1\n2\n3\n4\n5\n6\n") == "2\n3\n4\n5\n6"
    assert feedback(f"Add tests.\n{NEEDS}") == ""


def test_what_a_judge_says_before_a_bare_sentinel_is_what_is_missing() -> None:
    assert describe_missing(f"Add tests.\n{NEEDS}") == "Add tests."
    assert describe_missing(f"Good.\n{NEEDS}\nAdd tests.") == "Add tests."


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([], "stable"),
        ([0.9], "stable"),
        ([0.6, 0.7], "stable"),
        ([0.7, 0.6], "stable"),
        ([0.6, 0.71], "improving"),
        ([0.9, 0.1, 0.5], "improving"),
        ([0.5, 0.39], "degrading"),
    ],
)
def test_the_last_two_scores_make_a_trend(scores: list[float], expected: str) -> None:
    assert trend(scores) == expected


def test_what_is_neutralised_can_still_be_read_by_people() -> None:
    text = f"{GROUP}\n@worker:alpha do\n@end"

    assert neutralise(text) == "(quoted: GROUP_REFLECT_COMPLETE)\n@ worker:alpha do\n@ end"


WORDS = '[[ ]] NEEDS_ITERATION @worker: @WORKER: @end @ worker: end * _ SCORE: RATIONALE: { } "score" : 0.5 PASS FAIL'
pieces = st.sampled_from([GROUP, NEEDS, SINGLE, GROUP.lower(), "\n", "\r", "\r\n", " ", *WORDS.split()])
texts = st.one_of(st.text(), st.lists(st.one_of(pieces, st.text(max_size=2)), max_size=20).map("".join))


@given(texts)
def test_a_neutralised_text_says_nothing_and_stays_as_it_is(text: str) -> None:
    quoted = neutralise(text)

    assert neutralise(quoted) == quoted
    assert not is_complete(quoted)
    assert not is_complete(quoted, group=False)
    assert self_score(quoted) == 0.7
    assert "@worker:" not in quoted.lower()
    # It does not end a block around it, which a lead that echoes it might write.
    after = parse_plan(f"@worker:alpha x\n{quoted}\nlast", ["alpha"])
    assert [one.task.endswith("last") for one in after.assignments] == [True]


@given(texts)
def test_words_of_a_worker_are_no_plan_after_neutralising(text: str) -> None:
    blocks = neutralise(text.replace("[", "("))

    assert parse_plan(blocks, ["alpha", "x"]) == Plan([], [])


@given(texts)
def test_any_text_can_be_judged(text: str) -> None:
    score = parse_score(text)

    assert 0.0 <= score.score <= 1.0
    assert parse_pass_fail(text).passed == (parse_pass_fail(text).feedback is None)
    assert isinstance(feedback(text), str)


@given(st.lists(st.floats(0, 1)))
def test_any_scores_have_a_trend(scores: list[float]) -> None:
    assert trend(scores) in ("improving", "stable", "degrading")


@pytest.mark.parametrize(
    "piece", ["*", " ", "\n", "{", "[[", "score:", "score: 1\n", "rationale:", "-", "_ ", "@", "9"]
)
def test_a_long_reply_is_judged_in_time(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    began = time.perf_counter()

    parse_score(text)
    parse_pass_fail(text)
    neutralise(text)
    feedback(text)
    self_score(text)

    assert time.perf_counter() - began < 10


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ("SCORE: 85/100", 0.85),
        ("SCORE: 8 out of 10", 0.8),
        ("SCORE: 1 (out of 10)", 0.1),
        ("**Score:** 4 of 5", 0.8),
        ("SCORE: 85 percent", 0.85),
        ('{"score": "85%", "rationale": "good"}', 0.85),
        ('{"score": "8/10"}', 0.8),
        ('{"score": 1, "max_score": 10}', 0.1),
        ('{"score": "0.9"}', 0.9),
        ('{"score": "85"}', None),
        ('{"score": "high"}', None),
        ("SCORE: 8/0", None),
        ("SCORE: 90 points", None),
        ("8 out of 10", None),
    ],
)
def test_a_score_on_a_scale_counts_and_one_without_is_asked_for_again(reply: str, score: float | None) -> None:
    found = find_usable_score(reply)

    assert (None if found is None else found.score) == (None if score is None else pytest.approx(score))
