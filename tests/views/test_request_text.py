"""The names and values in a permission request cannot forge the text that a person reads about it."""

from __future__ import annotations

import pytest
from msgspec import structs
from wcwidth import wcswidth

from podium.values.action import RISK_KINDS, Action, RiskFact
from podium.values.event import PermissionAsked
from podium.views.request_text import escape_hidden_text, escape_in_line, format_request_lines, format_risk


def make_request(**arguments: object) -> PermissionAsked:
    action = Action(run="r", agent="sly", tool="mcp__files__put", arguments=arguments, directory="/repo")
    return PermissionAsked(id="5f0c", action=action, reason="no rule allows it")


def test_an_argument_name_with_line_breaks_stays_on_one_line() -> None:
    name = "path: a.txt\n\nwriter asks for permission (aaaa): read_file\n  path"

    lines = format_request_lines(make_request(**{name: "x"}))

    assert lines[0].startswith('  "path: a.txt\\n\\nwriter asks for permission')
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


def test_each_risk_fact_has_its_own_line() -> None:
    risks = (
        RiskFact(kind="deletes", examples=("build", "dist"), more=3),
        RiskFact(kind="control_characters", examples=("\\x1b",)),
    )

    lines = format_request_lines(structs.replace(make_request(), risks=risks))

    assert [line for line in lines if line.startswith("  risk")] == [
        "  risk: deletes or discards: build, dist and 3 more",
        "  risk: contains control or invisible characters: \\x1b",
    ]


def test_every_kind_of_risk_fact_has_its_words() -> None:
    assert [format_risk(RiskFact(kind=kind, examples=("a",))) for kind in RISK_KINDS] == [
        "deletes or discards: a",
        "reaches outside the checkout: a",
        "uses the network: a",
        "touches a protected path or a likely secret: a",
        "contains control or invisible characters: a",
        "runs a program that Podium does not know: a",
    ]


def test_an_example_of_a_risk_fact_cannot_pass_for_another_fact() -> None:
    sly = 'a", b\n  risk: none\u202e'

    shown = format_risk(RiskFact(kind="deletes", examples=(sly,)))

    assert shown == 'deletes or discards: "a\\", b\\n  risk: none\\u202e"'


@pytest.mark.parametrize("name", ["risk", "Sandbox", "Why (agent's words)", "  in /repo, because", 'a": "b'])
def test_an_argument_name_cannot_pass_for_a_line_of_podium(name: str) -> None:
    line = format_request_lines(make_request(**{name: "none"}))[0]

    assert line == '  "' + name.replace('"', '\\"') + '": none'


def test_the_agents_reason_is_quoted_line_by_line() -> None:
    words = "I remove it because " + "the build needs the room " * 5
    asked = structs.replace(make_request(path="a"), agent_reason=words.strip())

    lines = format_request_lines(asked)

    assert lines[:3] == [
        "  path: a",
        "  Why (agent's words):",
        "  | I remove it because the build needs the room the build needs the room",
    ]
    assert " ".join(line.removeprefix("  | ") for line in lines if line.startswith("  | ")) == words.strip()
    assert not any("agent's words" in line for line in format_request_lines(make_request(path="a")))


@pytest.mark.parametrize("filler", ["x", "x ", "世", "🙂", "\u3164", "e\u0301"])
def test_no_line_of_the_agents_reason_reaches_the_edge_of_a_terminal(filler: str) -> None:
    sly = f"{filler * 90}Allow bash (5f0c)?\n  risk: none\x1b[2J"
    asked = structs.replace(make_request(), agent_reason=sly)

    lines = format_request_lines(asked)
    quoted = lines[1 : lines.index("  in /repo, because no rule allows it")]

    assert quoted
    assert all(line.startswith("  | ") and wcswidth(line) < 80 for line in quoted)
    assert "\\x1b[2J" in " ".join(quoted)


def test_ordinary_text_in_any_language_is_shown_as_it_is() -> None:
    text = "Grüße, 世界, привет, naïve, العربية 🙂"

    assert escape_hidden_text(text) == escape_in_line(text) == text
