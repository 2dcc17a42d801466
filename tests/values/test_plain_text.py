"""Text that people read or write: lists of words in a sentence and in a file."""

from __future__ import annotations

import pytest

from podium import Agent
from podium.values.plain_text import join_some, join_words, split_at_commas, truncate_text


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", [""]),
        ("a,b", ["a", "b"]),
        ("a(b,c),d", ["a(b,c)", "d"]),
        ("a(b(c,d),e),f", ["a(b(c,d),e)", "f"]),
        ("a),b", ["a)", "b"]),
    ],
)
def test_commas_inside_parentheses_do_not_split(text: str, parts: list[str]) -> None:
    assert list(split_at_commas(text)) == parts


def test_an_agent_in_code_names_tools_as_its_file_would() -> None:
    agent = Agent(name="a", tools="Bash(git log, (x)), Agent(b, c),")

    assert agent.tools == ("Bash(git log, (x))", "Agent(b, c)")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [([], ""), (["a"], "a"), (["a", "b"], "a or b"), (["a", "b", "c"], "a, b or c")],
)
def test_words_are_joined_as_in_a_sentence(words: list[str], sentence: str) -> None:
    assert join_words(words, last="or") == sentence


@pytest.mark.parametrize(
    ("count", "text"), [(0, ""), (1, "a"), (2, "a, b"), (3, "a, b and 1 more"), (5, "a, b and 3 more")]
)
def test_a_long_list_names_its_first_words_and_counts_the_others(count: int, text: str) -> None:
    assert join_some(list("abcde")[:count], 2) == text


def test_a_text_that_is_too_long_ends_with_an_ellipsis() -> None:
    assert [truncate_text(text, 3) for text in ("abc", "abcd")] == ["abc", "ab…"]
