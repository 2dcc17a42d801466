"""The program that finds the parts of source code to highlight: keywords, strings, comments, numbers and names.

It runs in its own process, because a regular expression can be very slow on some texts, and a process can be killed.
It reads a JSON list of files from stdin, each with a `language` and `texts`, and prints a line for each file: a JSON
list with an item for each text. Each item contains a list of spans for each line of the text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped] # it has no types
from pygments.token import Token  # type: ignore[import-untyped] # it has no types

Span = tuple[int, int, str]
"""The start, end and kind of a part of a line. Start and end are offsets in UTF-16 code units, as in a browser."""

# The first match wins. Everything else is plain text.
KINDS = (
    (Token.Comment.PreprocFile, "string"),
    (Token.Comment.Preproc, "keyword"),
    (Token.Comment, "comment"),
    (Token.Keyword, "keyword"),
    (Token.Operator.Word, "keyword"),
    (Token.Literal.String, "string"),
    (Token.Literal.Number, "number"),
    (Token.Name.Builtin.Pseudo, ""),
    (Token.Name.Attribute, "name"),
    (Token.Name.Builtin, "name"),
    (Token.Name.Class, "name"),
    (Token.Name.Decorator, "name"),
    (Token.Name.Exception, "name"),
    (Token.Name.Function, "name"),
    (Token.Name.Tag, "name"),
    (Token.Generic.Heading, "name"),
    (Token.Generic.Subheading, "name"),
)


def main() -> None:
    """Print the spans of each file in the input as soon as they are found."""
    for file in json.load(sys.stdin.buffer):
        lexer = get_lexer_by_name(file["language"])
        found = [_find_spans(text, lexer.get_tokens_unprocessed(text)) for text in file["texts"]]
        print(json.dumps(found, separators=(",", ":")), flush=True)  # noqa: T201 - the output of the program


def _find_spans(text: str, tokens: Iterable[tuple[int, Any, str]]) -> list[list[Span]]:
    """Return the spans of each line of the text."""
    lines = text.split("\n")
    spans: list[list[Span]] = [[] for _ in lines]
    number = start = 0
    for at, token, value in tokens:
        kind = find_kind(token)
        if not kind or at < start:
            continue
        while at > start + len(lines[number]):
            start += len(lines[number]) + 1
            number += 1
        for row, part in enumerate(value.split("\n"), number):
            column = at - start if row == number else 0
            if part.strip():
                _add_span(spans[row], column, column + len(part), kind)
    return [[_count_utf16(line, span) for span in found] for line, found in zip(lines, spans, strict=True)]


@cache
def find_kind(token: Any) -> str:
    """Return the kind of a token, or an empty string if it is plain text."""
    return next((kind for parent, kind in KINDS if token in parent), "")


def _add_span(spans: list[Span], first: int, end: int, kind: str) -> None:
    """Add a span to a line's spans, or extend the last span if the new one continues it."""
    if spans and spans[-1][1:] == (first, kind):
        first = spans.pop()[0]
    spans.append((first, end, kind))


def _count_utf16(line: str, span: Span) -> Span:
    """Convert the start and end of a span from characters to UTF-16 code units."""
    first, end, kind = span
    return first + _count_astral(line[:first]), end + _count_astral(line[:end]), kind


def _count_astral(text: str) -> int:
    """Return how many characters of the text need two UTF-16 code units."""
    return 0 if text.isascii() else sum(character > "\uffff" for character in text)


if __name__ == "__main__":
    main()
