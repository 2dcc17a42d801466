"""Agent names: a name already in use gets a number, and a mistyped one a suggestion."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.files.agent_name import MAX_NAME_LENGTH, make_unique_name, sort_by_similarity, suggest_names


@given(st.text(), st.sets(st.text()))
def test_a_numbered_name_is_never_taken(name: str, taken: set[str]) -> None:
    assert make_unique_name(name, {*taken, name}.__contains__) not in {*taken, name}
    assert make_unique_name(name, set[str]().__contains__) == name


@pytest.mark.parametrize(
    ("name", "unique"),
    [("a", "a-3"), ("a" * MAX_NAME_LENGTH, "a" * 62 + "-2"), ("b" * 61 + "-bb", "b" * 61 + "-2")],
)
def test_a_numbered_name_is_not_too_long(name: str, unique: str) -> None:
    taken = {name, "a-2"}

    assert make_unique_name(name, taken.__contains__, longest=MAX_NAME_LENGTH) == unique


def test_the_most_similar_name_comes_first() -> None:
    assert sort_by_similarity("biulder", ["analyst", "builder", "reviewer"])[0] == "builder"
    assert suggest_names("biulder", ["analyst", "builder"], but="analyst") == "available: builder"
