"""Cycles among things that depend on each other."""

from __future__ import annotations

import pytest

from podium.values.plan import find_cycle


@pytest.mark.parametrize(
    ("dependencies", "cycle"),
    [
        ({}, []),
        ({"a": ["b"], "b": ["elsewhere"]}, []),
        ({"a": ["a"]}, ["a", "a"]),
        ({"a": ["b"], "b": ["c"], "c": ["b"]}, ["b", "c", "b"]),
        ({"done": [], "a": ["done", "b"], "b": ["a"]}, ["a", "b", "a"]),
    ],
)
def test_a_cycle_names_only_the_items_in_it(dependencies: dict[str, list[str]], cycle: list[str]) -> None:
    assert find_cycle(dependencies) == cycle
