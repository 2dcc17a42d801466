"""Decode the words of a parsed shell command. Quotes and escapes are resolved as in a shell."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    if kind == "translated_string":
        return decode_word(node.children[-1])
    if kind in ("concatenation", "command_name") and (children := node.children):
        # In `r$""m`, the sign before the quotes is no part of the word.
        return "".join(decode_word(child) for child in children if child.type != "$")
    text = decode_text(node)
    if kind == "raw_string":
        return text[1:-1]
    if kind == "string":
        return re.sub(r'\\(["\\$`\n])', r"\1", text[1:-1])
    if kind == "ansi_c_string":
        # bash ends such a string at a NUL.
        return _ANSI_ESCAPE.sub(_decode_ansi_escape, text[2:-1]).partition("\0")[0]
    return text


def is_glob(node: Node) -> bool:
    """Return whether a word is a pattern that the shell expands to names of files. Words with quotes do not count."""
    if node.type not in ("word", "concatenation"):
        return False
    text = decode_text(node)
    return _GLOB_SIGN.search(text) is not None and _QUOTE.search(text) is None


_GLOB_SIGN = re.compile(r"[*?\[]")
_QUOTE = re.compile(r"[\"'\\$`]")


def _unescape_backslash(escape: re.Match[str]) -> str:
    return "" if escape[1] == "\n" else escape[1]


_ANSI_ESCAPE = re.compile(
    r"\\(x\{[0-9a-fA-F]*\}?|x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL
)


def _decode_ansi_escape(escape: re.Match[str]) -> str:
    code = escape[1]
    if code[0] in "xuU" and len(code) > 1:
        number = int(code[1:].strip("{}") or "0", 16)
        if code[0] == "x":
            number &= 0xFF
        return chr(number) if number <= sys.maxunicode else ""
    if code[0] in "01234567":
        return chr(int(code, 8) & 0xFF)
    if code[0] == "c" and len(code) == 2:
        return chr(ord(code[1].upper()) & 0x1F)
    return {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}.get(
        code, code if code in "\\'\"?" else f"\\{code}"
    )


STARTS_ELSEWHERE = re.compile("-C|--(?:directory|chdir|cwd)")
_START_OPTIONS = ("-C", "--directory", "--chdir", "--cwd")


def list_start_folders(words: tuple[str, ...]) -> Iterator[str]:
    """Yield the folders in which a program such as `git -C DIR` starts."""
    for word, value in zip(words, (*words[1:], ""), strict=True):
        if word in _START_OPTIONS:
            yield value
        elif word.startswith("-C"):
            yield word[2:]
        elif word.startswith(tuple(f"{option}=" for option in _START_OPTIONS[1:])):
            yield word.partition("=")[2]
