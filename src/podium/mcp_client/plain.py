"""Text from servers in the form in which it may be shown, whole or in part."""

from __future__ import annotations

from ..values.plain_text import escape_unprintable, truncate_text

__all__ = ["cut_middle", "escape_unprintable", "truncate_text"]


def cut_middle(text: str, most: int) -> str:
    """`text` in at most about `most` bytes: its beginning and its end, and how much is missing between them."""
    data = text.encode(errors="surrogatepass")
    if len(data) <= most:
        return text
    head, tail = (part.decode(errors="ignore") for part in (data[: most // 2], data[-(most // 2) :]))
    return f"{head}\n[… {len(data) - 2 * (most // 2):,} bytes left out …]\n{tail}"
