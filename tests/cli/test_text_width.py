from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wcwidth import wcswidth

from podium.cli.output.text import (
    align_columns,
    count_fitting,
    display_width,
    drop_columns,
    fit_columns,
    format_age,
    format_duration,
    format_usage,
    truncate_line,
    truncate_start,
)
from podium.values.plain_text import format_count
from podium.values.usage import Usage


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-1, "0.0s"), (0.44, "0.4s"), (12.9, "12s"), (185, "3m 05s"), (7800, "2h 10m"), (273600, "3d 4h")],
)
def test_durations_are_formatted_in_the_units_that_matter(seconds: float, said: str) -> None:
    assert format_duration(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "said"), [(-5, "just now"), (0.5, "just now"), (59, "59s ago"), (190, "3m ago"), (90000, "1d ago")]
)
def test_ages_are_formatted_roughly(seconds: float, said: str) -> None:
    assert format_age(seconds) == said


def test_counts_agree_with_their_nouns() -> None:
    assert [format_count(1, "run"), format_count(1200, "run")] == ["1 run", "1,200 runs"]
    assert format_usage(Usage(calls=1, input_tokens=3, usd=0.01)) == "1 model call, 3 tokens, $0.0100"


def test_wide_characters_take_two_columns() -> None:
    assert (display_width("日本"), truncate_line("日本語です", 5), truncate_start("日本語です", 5)) == (
        4,
        "日本…",
        "…です",
    )


@pytest.mark.parametrize(
    ("sign", "columns"),
    [
        ("👩\u200d👩\u200d👧", 2),
        ("❤\ufe0f", 2),
        ("👍🏽", 2),
        ("🇩🇪", 2),
        ("1\ufe0f\u20e3", 2),
        ("e\u0301", 1),
        ("각", 2),
        ("\u200b", 0),
    ],
)
def test_a_sign_of_several_characters_takes_the_columns_of_what_is_shown(sign: str, columns: int) -> None:
    assert display_width(sign) == columns


def test_a_cut_never_splits_a_sign_of_several_characters() -> None:
    family = "👩\u200d👩\u200d👧"

    assert truncate_line(f"{family}{family}{family}", 5) == f"{family}{family}…"
    assert truncate_start(f"{family}{family}{family}", 5) == f"…{family}{family}"
    assert count_fitting(f"a{family}", 2) == 1


@given(st.text(st.characters(max_codepoint=0x2FF, exclude_categories=["Cc"]) | st.sampled_from("–—‘’“”•…─│├└")))
def test_text_that_needs_no_table_of_widths_has_the_width_that_the_table_gives(text: str) -> None:
    assert display_width(text) == wcswidth(text)


@given(st.text(), st.integers(min_value=1, max_value=30))
def test_what_is_cut_fits_on_one_line(text: str, most: int) -> None:
    for short in (truncate_line(text, most), truncate_start(text, most)):
        assert display_width(short) <= most
        assert len(short.splitlines()) <= 1


@given(st.text(max_size=10))
def test_what_fits_stays(text: str) -> None:
    line = " ".join(text.split())

    assert truncate_line(text, 40) == truncate_start(text, 40) == line


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    rows = align_columns([["a", "日本", "x"], ["long", "b", "much longer"]])

    assert rows == [["a   ", "日本", "x"], ["long", "b   ", "much longer"]]


def test_the_last_column_takes_what_the_others_leave_and_is_never_narrower_than_the_least() -> None:
    rows = [["ab", "one two three"], ["c", "four"]]

    assert fit_columns(rows, most=11, least=4) == ["ab  one tw…", "c   four"]
    assert fit_columns(rows, most=5, least=4) == ["ab  one…", "c   four"]
    assert fit_columns([], most=11) == []


def test_a_table_that_is_too_wide_drops_empty_columns_first_and_then_optional_ones() -> None:
    rows = [["NAME", "SIZE", "COST", "AGE"], ["cart", "12 kB", "-", "3m"]]

    assert drop_columns(rows, most=80, spare=("SIZE", "COST")) == rows
    assert drop_columns(rows, most=17, spare=("SIZE", "COST"))[0] == ["NAME", "SIZE", "AGE"]
    assert drop_columns(rows, most=3, spare=("SIZE", "COST"))[1] == ["cart", "3m"]
