"""Escaping and shortening of untrusted text for display."""

from __future__ import annotations


def escape_unprintable(text: str) -> str:
    """Return `text` on one line, with unprintable characters and terminal control codes escaped."""
    return "".join(one if one.isprintable() else _escape_character(one) for one in text)


def truncate_text(text: str, longest: int) -> str:
    """Return `text` cut to `longest` characters, with an ellipsis if it was cut."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _escape_character(one: str) -> str:
    return " " if one in "\n\t" else one.encode("unicode_escape").decode("ascii")


def cut_middle(text: str, most: int) -> str:
    """Return `text` cut to about `most` bytes: its beginning, a note of how much is left out, and its end."""
    data = text.encode(errors="surrogatepass")
    if len(data) <= most:
        return text
    head, tail = (part.decode(errors="ignore") for part in (data[: most // 2], data[-(most // 2) :]))
    return f"{head}\n[… {len(data) - 2 * (most // 2):,} bytes left out …]\n{tail}"


def format_count(number: int, word: str) -> str:
    """`1 call`, `1,200 calls`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"
