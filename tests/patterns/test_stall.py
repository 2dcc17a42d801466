"""Detecting a loop that makes no progress."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from podium.patterns.stall import StallDetector

OTHERS = ["one two three", "four five six", "seven eight nine", "ten eleven twelve", "a b c", "d e f"]


def test_the_first_repetition_warns_and_the_second_in_a_row_stalls() -> None:
    stall = StallDetector()

    assert [stall.check("the same words") for _ in range(2)] == [False, True]
    assert (stall.consecutive, stall.is_stalled) == (1, False)
    assert stall.check("the same words")
    assert (stall.consecutive, stall.is_stalled) == (2, True)


def test_something_new_begins_the_count_again() -> None:
    stall = StallDetector()

    for text in ("x", "x", "y z", "y z"):
        stall.check(text)

    assert (stall.consecutive, stall.is_stalled) == (1, False)


def test_a_text_is_remembered_for_as_many_as_the_window() -> None:
    stall = StallDetector(window=5)

    assert not any(stall.check(text) for text in OTHERS)
    assert stall.check(OTHERS[1])
    assert not StallDetector(window=1).check(OTHERS[0])
    short = StallDetector(window=1)
    assert not any(short.check(text) for text in (OTHERS[0], OTHERS[1], OTHERS[0]))


def test_more_than_nine_in_ten_words_alike_repeat() -> None:
    ten = " ".join("abcdefghij")
    stall = StallDetector()

    stall.check(ten)
    assert not stall.check(ten[:-2])
    assert stall.similarity == 0.9
    assert stall.check(f"{ten[:-2]}\n\ta")
    assert stall.similarity == 1.0


def test_case_counts() -> None:
    stall = StallDetector()

    assert not any(stall.check(text) for text in ("a b c", "A B C"))
    assert stall.similarity == 0.0


def test_a_blank_text_repeats_even_as_the_first() -> None:
    stall = StallDetector()

    assert stall.check(" \n")
    assert stall.similarity == 0.0
    assert stall.check("")
    assert stall.is_stalled


def test_a_reset_forgets_everything() -> None:
    stall = StallDetector()
    for _ in range(3):
        stall.check("same")

    stall.reset()

    assert (stall.consecutive, stall.is_stalled, stall.similarity) == (0, False, 0.0)
    assert not stall.check("same")


@given(st.lists(st.text()), st.text())
def test_a_text_said_twice_always_repeats(before: list[str], text: str) -> None:
    stall = StallDetector()
    for one in before:
        stall.check(one)

    stall.check(text)

    assert stall.check(text)
    assert stall.similarity == 1.0
