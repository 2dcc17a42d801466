"""Byte sizes as people write and read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.values.plain_text import MAX_SIZE, UNITS, format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("20GB", 20 * 10**9),
        ("500MB", 500 * 10**6),
        ("1.5 gb", 1_500_000_000),
        ("0.1kB", 100),
        ("7 TB", 7 * 10**12),
        ("812", 812),
        ("812B", 812),
    ],
)
def test_a_size_is_a_number_with_or_without_a_unit_of_thousands(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "0", "0GB", "-1", "1.5", "1.5B", "20GiB", "20G", "GB", "1e9", "1,5GB", "9" * 15 + "TB"]
)
def test_anything_else_is_none(text: str) -> None:
    assert parse_size(text) is None


@pytest.mark.parametrize(
    ("size", "told"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1_250_000, "1.2 MB"), (20 * 10**9, "20 GB"), (3 * 10**15, "3000 TB")],
)
def test_a_size_is_formatted_in_the_largest_unit_that_fits(size: int, told: str) -> None:
    assert format_size(size) == told


@given(st.integers(1, MAX_SIZE))
def test_a_formatted_size_parses_back_to_nearly_the_same(size: int) -> None:
    again = parse_size(format_size(size))

    unit = max(unit for unit in UNITS.values() if unit <= size)
    assert again is not None
    assert abs(again - size) <= unit / 20
