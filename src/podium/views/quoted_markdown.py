"""Build Markdown that is safe to paste anywhere: text from agents is quoted and cannot affect the text around it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..values.plain_text import escape_for_terminal
from ..values.request import quote_lines

_SIGNS = re.compile(r"([\\`*_{}\[\]<>#|!@~$&])")
_WITHIN = r"^((?:[\s>]|[-+*](?=\s)|\d{1,9}[.)](?=\s))*)"
"""The markers that can precede a heading in a list or a block quote."""
_HEADING = re.compile(_WITHIN + r"(#{1,6}(?:\s|$)|=+\s*$|-+\s*$)")
_DEFINITION = re.compile(_WITHIN + r"(\[[^\]]*\]:)")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")


def format_bullets(lines: Iterable[str]) -> list[str]:
    """Return one block with `lines` as a bulleted list, or no block if there are no lines."""
    points = [f"- {escape_inline(line)}" for line in lines]
    return ["\n".join(points)] if points else []


def escape_inline(text: str) -> str:
    """Return `text` as one line, with Markdown's special characters escaped."""
    return _SIGNS.sub(r"\\\1", escape_for_terminal(" ".join(text.split())))


def quote_block(text: str) -> str:
    """Return `text` as a block quote, with headings, tags, images and link definitions escaped."""
    lines = [_escape_block_syntax(line) for line in escape_for_terminal(text).strip("\n").splitlines()]
    return quote_lines("\n".join(lines)).lstrip("\n")


def _escape_block_syntax(line: str) -> str:
    line = _DEFINITION.sub(r"\1\\\2", _HEADING.sub(r"\1\\\2", line))
    return _TAG.sub("&lt;", line).replace("![", "!\\[")
