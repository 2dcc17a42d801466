"""Decode the words of a parsed shell command. Quotes and escapes are resolved as in a shell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node


def decode_text(node: Node) -> str:
    """Return the source text of a node."""
    return (node.text or b"").decode("utf-8", "replace")


def decode_word(node: Node) -> str:
    """Return a word as a program would receive it. Expansions that only the shell can resolve are left unchanged."""
    kind = node.type
    if kind == "word":
        text = decode_text(node)
        return text if "\\" not in text else re.sub(r"\\(.)", _unescape_backslash, text, flags=re.DOTALL)
    if kind in ("concatenation", "command_name") and (children := node.children):
        return "".join(map(decode_word, children))
    text = decode_text(node)
    if kind == "raw_string":
        return text[1:-1]
    if kind == "string":
        return re.sub(r'\\(["\\$`\n])', r"\1", text[1:-1])
    if kind == "ansi_c_string":
        return re.sub(
            r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|[0-7]{1,3}|.)", _decode_ansi_escape, text[2:-1], flags=re.DOTALL
        )
    return text


def _unescape_backslash(escape: re.Match[str]) -> str:
    return "" if escape[1] == "\n" else escape[1]


def _decode_ansi_escape(escape: re.Match[str]) -> str:
    code = escape[1]
    if code[0] in "xu" and len(code) > 1:
        return chr(int(code[1:], 16))
    if code[0] in "01234567":
        return chr(int(code, 8))
    return {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b"}.get(code, code)
