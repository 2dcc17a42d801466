"""No part of a long line of a request begins where Podium's own lines begin."""

from __future__ import annotations

import pyte
import pytest
from wcwidth import wcswidth

from podium.cli.output.request_wrapping import MARGIN, wrap_request

FORGED = "Allow read_file (aaaa)?"


@pytest.mark.parametrize("filler", ["x", "x ", "世", "🙂", "e\u0301", "\t", "한"], ids=ascii)
@pytest.mark.parametrize("columns", [10, 40, 80, 81])
def test_a_terminal_wraps_no_line_of_a_request(filler: str, columns: int) -> None:
    text = "\n".join(f"  command: {filler * count}{FORGED}" for count in range(90))

    lines = wrap_request(text, columns).split("\n")

    assert all(line.startswith(("  command: ", MARGIN)) for line in lines)
    assert all(0 <= wcswidth(line) < max(columns, 24) for line in lines)


def test_nothing_is_lost_and_short_lines_stay() -> None:
    line = "  command: " + "one two three " * 40

    assert wrap_request(line, 80).replace(f"\n{MARGIN}", "") == line
    assert wrap_request("a\n  b: c\n", 80) == "a\n  b: c\n"


def test_a_line_of_a_million_characters_is_wrapped_at_once() -> None:
    assert wrap_request("世" * 500_000 + "x" * 500_000, 80).count("\n") > 19_000


def test_a_screen_of_eighty_columns_shows_the_margin_at_every_continued_line() -> None:
    screen = pyte.Screen(80, 60)
    text = "\n".join(f"  command: {'世' * count}{FORGED * 5}" for count in range(12))

    pyte.Stream(screen).feed(wrap_request(text, 80).replace("\n", "\r\n"))

    assert all(line.startswith(("  command: ", MARGIN)) for line in screen.display if line.strip())
