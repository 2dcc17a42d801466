"""Wrap styled text into lines, and format the lines with terminal escape codes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Literal, NamedTuple

from .text import count_fitting, display_width

TextStyle = Literal["bold", "dim", "italic", "underline", "strike", "code"]

CODES: dict[TextStyle, str] = {"bold": "1", "dim": "2", "italic": "3", "underline": "4", "strike": "9", "code": "36"}
"""The terminal escape code for each style."""
COLOURS: frozenset[TextStyle] = frozenset({"code"})

_PIECES = re.compile(r" +|[^ ]+")


class Span(NamedTuple):
    """A piece of text with one set of styles."""

    text: str
    styles: frozenset[TextStyle] = frozenset()


Line = list[Span]


def measure_line(line: Iterable[Span]) -> int:
    """Return the width of a line in columns."""
    return sum(display_width(span.text) for span in line)


def wrap_spans(spans: Iterable[Span], width: int, *, cuts_words: bool = False) -> list[Line]:
    """Break spans into lines of at most `width` columns, between words and at line breaks.

    A word that is wider than `width` gets its own line, which the terminal wraps, so that the word can be copied in one
    piece. With `cuts_words`, the word is cut instead.
    """
    return [line for whole in _split_lines(spans) for line in _wrap_line(whole, width, cuts_words)]


def _split_lines(spans: Iterable[Span]) -> list[Line]:
    lines: list[Line] = [[]]
    for span in spans:
        first, *rest = span.text.split("\n")
        lines[-1].append(Span(first, span.styles))
        lines += ([Span(text, span.styles)] for text in rest)
    return lines


def _wrap_line(line: Line, width: int, cuts_words: bool) -> list[Line]:
    lines: list[Line] = [[]]
    used = 0
    gap: Line = []
    for is_gap, pieces in groupby(_split_pieces(line), key=lambda piece: piece.text.startswith(" ")):
        if is_gap:
            gap = list(pieces)
            continue
        for word in _cut_word(list(pieces), width) if cuts_words else [list(pieces)]:
            size = measure_line(word)
            if lines[-1] and used + measure_line(gap) + size > width:
                lines.append([])
                used, gap = 0, []
            used += measure_line(gap) + size
            lines[-1] += [*gap, *word]
            gap = []
    return lines


def _split_pieces(line: Line) -> Iterator[Span]:
    """Yield the words of a line and the gaps between them. A word with several styles is yielded in several pieces."""
    for span in line:
        for piece in _PIECES.findall(span.text):
            yield Span(piece, span.styles)


def _cut_word(word: Line, width: int) -> list[Line]:
    """Split a word into parts of at most `width` columns."""
    parts: list[Line] = [[]]
    for text, styles in word:
        while text:
            fitting = count_fitting(text, width - measure_line(parts[-1]))
            if not fitting and parts[-1]:
                parts.append([])
                continue
            fitting = fitting or 1
            parts[-1].append(Span(text[:fitting], styles))
            text = text[fitting:]
    return parts


def format_styled_line(line: Line, *, has_colours: bool) -> str:
    """Return a line with the terminal escape codes for its styles."""
    return "".join(
        _format_span("".join(span.text for span in spans), styles, has_colours)
        for styles, spans in groupby(line, key=lambda span: span.styles)
    )


def _format_span(text: str, styles: frozenset[TextStyle], has_colours: bool) -> str:
    codes = [CODES[style] for style in CODES if style in styles and (has_colours or style not in COLOURS)]
    return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if codes and text else text
