"""Markdown that can be pasted anywhere: what agents said is quoted in it and acts on nothing around it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...values.request import quote_lines
from .text import escape_for_terminal

_SIGNS = re.compile(r"([\\`*_{}\[\]<>#|!@~$&])")
_WITHIN = r"^((?:[\s>]|[-+*](?=\s)|\d{1,9}[.)](?=\s))*)"
"""What may stand before a heading in a list or in a quotation."""
_HEADING = re.compile(_WITHIN + r"(#{1,6}(?:\s|$)|=+\s*$|-+\s*$)")
_DEFINITION = re.compile(_WITHIN + r"(\[[^\]]*\]:)")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")


def format_bullets(lines: Iterable[str]) -> list[str]:
    """Lines as one block, a point each; no block for no lines."""
    points = [f"- {escape_inline(line)}" for line in lines]
    return ["\n".join(points)] if points else []


def escape_inline(text: str) -> str:
    """Some words as one line in which no sign means anything to Markdown."""
    return _SIGNS.sub(r"\\\1", escape_for_terminal(" ".join(text.split())))


def quote_block(text: str) -> str:
    """A text quoted line by line, without headings, tags, pictures that are fetched and links for other lines."""
    lines = [_escape_block_syntax(line) for line in escape_for_terminal(text).strip("\n").splitlines()]
    return quote_lines("\n".join(lines)).lstrip("\n")


def _escape_block_syntax(line: str) -> str:
    line = _DEFINITION.sub(r"\1\\\2", _HEADING.sub(r"\1\\\2", line))
    return _TAG.sub("&lt;", line).replace("![", "!\\[")
