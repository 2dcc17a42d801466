"""Markdown that can be pasted anywhere: what agents said is quoted in it and acts on nothing around it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...values.request import quoted
from .text import visible

_SIGNS = re.compile(r"([\\`*_{}\[\]<>#|!@~$&])")
_WITHIN = r"^((?:[\s>]|[-+*](?=\s)|\d{1,9}[.)](?=\s))*)"
"""What may stand before a heading in a list or in a quotation."""
_HEADING = re.compile(_WITHIN + r"(#{1,6}(?:\s|$)|=+\s*$|-+\s*$)")
_DEFINITION = re.compile(_WITHIN + r"(\[[^\]]*\]:)")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")


def bullets(lines: Iterable[str]) -> list[str]:
    """Lines as one block, a point each; no block for no lines."""
    told = [f"- {inline(line)}" for line in lines]
    return ["\n".join(told)] if told else []


def inline(text: str) -> str:
    """Some words as one line in which no sign means anything to Markdown."""
    return _SIGNS.sub(r"\\\1", visible(" ".join(text.split())))


def quotation(text: str) -> str:
    """A text quoted line by line, without headings, tags, pictures that are fetched and links for other lines."""
    lines = [_harmless(line) for line in visible(text).strip("\n").splitlines()]
    return quoted("\n".join(lines)).lstrip("\n")


def _harmless(line: str) -> str:
    line = _DEFINITION.sub(r"\1\\\2", _HEADING.sub(r"\1\\\2", line))
    return _TAG.sub("&lt;", line).replace("![", "!\\[")
