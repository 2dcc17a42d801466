"""The names and values in a permission request cannot forge the text that a person reads about it."""

from __future__ import annotations

import pytest

from podium.values.action import Action
from podium.values.event import PermissionAsked
from podium.views.request_text import escape_hidden_text, escape_in_line, format_request_lines


def make_request(**arguments: object) -> PermissionAsked:
    action = Action(run="r", agent="sly", tool="mcp__files__put", arguments=arguments, directory="/repo")
    return PermissionAsked(id="5f0c", action=action, reason="no rule allows it")


def test_an_argument_name_with_line_breaks_stays_on_one_line() -> None:
    name = "path: a.txt\n\nwriter asks for permission (aaaa): read_file\n  path"

    lines = format_request_lines(make_request(**{name: "x"}))

    assert lines[0].startswith("  path: a.txt\\n\\nwriter asks for permission")
    assert not any(line.startswith("writer asks") for line in "\n".join(lines).split("\n"))


def test_a_value_with_line_breaks_is_indented_below_its_name() -> None:
    shown = "\n".join(format_request_lines(make_request(text="one\nwriter asks for permission (aaaa): read_file")))

    assert "  text: \n    one\n    writer asks" in shown


def test_a_long_argument_name_is_cut() -> None:
    assert len(escape_in_line("n" * 5000)) == 61


@pytest.mark.parametrize(
    "hidden",
    [
        "\u3000",
        "\u2003",
        "\u00a0",
        "\u2800",
        "\u3164",
        "\uffa0",
        "\u034f",
        "\ufe0f",
        "\U000e0101",
        "\u202e",
        "\x1b",
        "\u200b",
    ],
)
def test_characters_that_cannot_be_seen_are_escaped_in_names_and_values(hidden: str) -> None:
    shown = escape_hidden_text("\n".join(format_request_lines(make_request(**{f"a{hidden}b": f"c{hidden}d"}))))

    assert hidden not in shown
    assert shown.count("\\") == 2


def test_ordinary_text_in_any_language_is_shown_as_it_is() -> None:
    text = "Grüße, 世界, привет, naïve, العربية 🙂"

    assert escape_hidden_text(text) == escape_in_line(text) == text
