"""Escape, quote, shorten and split text, format counts, times and lists of words, and remove emoji from names."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from functools import cache

from .hidden_characters import CONTROL_CATEGORIES, escape_hidden

_WIDTH = 6
_NUMBERED = re.compile(r" *(\d+)\t")
_PADDED = re.compile(rf"(?= *\d+\t)[ \d]{{{_WIDTH},}}\t")


MAX_SIZE = 2**63 - 1
"""The largest size, in bytes, that all stores and message formats can represent."""
UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_WRITTEN = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,3})?) ?(B|kB|MB|GB|TB)?", re.IGNORECASE)

HIDDEN_CATEGORIES = frozenset(CONTROL_CATEGORIES)
_EMOJI_BLOCKS = ((0x2300, 0x27C0), (0x2B00, 0x2C00), (0x1F000, 0x1FC00))
_EMOJI_MODIFIERS = "\u200d\u20e3\ufe0e\ufe0f"
NARROW = re.compile(r"[\x00-\u02ff\u2010-\u2027\u2500-\u257f]*")
"""Text in which each character is one column wide: Latin letters, punctuation, and the characters that draw trees.

For such text, no width table is needed, so most commands never load it.
"""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
MINUTE, HOUR, DAY = 60, 3600, 86400


def escape_unprintable(text: str) -> str:
    """Return `text` on one line: unprintable characters are escaped, and line breaks and tabs become spaces."""
    shown = "".join(one if one.isprintable() else _escape_character(one) for one in text)
    return escape_hidden(shown, keeps_variants=True)


def escape_for_terminal(text: str) -> str:
    """Return `text` with control and invisible characters escaped. Line breaks and tabs are kept."""
    return escape_hidden(text, keeps_variants=True)


def truncate_text(text: str, longest: int = 60) -> str:
    """Return `text` cut to `longest` characters, with an ellipsis if it was cut."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _escape_character(one: str) -> str:
    return " " if one in "\n\t" else one.encode("unicode_escape").decode("ascii")


def display_width(text: str) -> int:
    """Return the width of `text` in terminal columns."""
    if text.isascii() or NARROW.fullmatch(text):
        return len(text)
    from wcwidth import wcswidth  # imported here to keep start-up fast: most text is Latin and does not need it

    # A control character has no defined width; it is counted as one column.
    return wcswidth(_CONTROL.sub("?", text))


def count_fitting(text: str, most: int) -> int:
    """Return how many characters of `text` fit into `most` columns, without splitting a grapheme."""
    if text.isascii() or NARROW.fullmatch(text):
        return max(min(len(text), most), 0)
    from wcwidth import iter_graphemes  # imported here to keep start-up fast: most text is Latin and does not need it

    columns = kept = 0
    for sign in iter_graphemes(text):
        if (columns := columns + display_width(sign)) > most:
            break
        kept += len(sign)
    return kept


def truncate_line(text: str, most: int) -> str:
    """Return `text` as one line of at most `most` columns."""
    line = " ".join(text.split())
    if (len(line) if line.isascii() else display_width(line)) <= most:
        return line
    return f"{line[: count_fitting(line, most - 1)].rstrip()}…"


def cut_middle(text: str, most: int) -> str:
    """Return `text` cut to about `most` bytes: its start, a note that says how much is missing, and its end."""
    data = text.encode(errors="surrogatepass")
    if len(data) <= most:
        return text
    head, tail = (part.decode(errors="ignore") for part in (data[: most // 2], data[-(most // 2) :]))
    return f"{head}\n[… {len(data) - 2 * (most // 2):,} bytes left out …]\n{tail}"


def format_count(number: int, word: str, plural: str = "") -> str:
    """Format a count with its noun: `1 call`, `1,200 calls`. Pass `plural` if the plural is not formed with an s."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {plural or f'{word}s'}"


LAST_TIME = 253_402_300_799.0
"""The end of the year 9999, in seconds since the epoch. Later times cannot be written as a date."""


def format_utc_time(at: float) -> str:
    """Format a time, given in seconds since the epoch, to the minute: `2026-11-18 09:30 UTC`."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(min(max(at, 0.0), LAST_TIME)))


LONGEST_COUNTDOWN = 9_999 * 86_400.0
"""The most that is shown, in seconds. A host of a fleet can write any time into its run."""


def format_countdown(seconds: float) -> str:
    """Format the remaining time in its two largest units: `4 h 12 min`, `2 min 5 s`, `0 s`."""
    left = round(max(0.0, min(seconds, LONGEST_COUNTDOWN)))
    units = (("d", left // 86_400), ("h", left // 3_600 % 24), ("min", left // 60 % 60), ("s", left % 60))
    first = next((place for place, (_, amount) in enumerate(units) if amount), len(units) - 1)
    return " ".join(f"{amount} {unit}" for unit, amount in units[first : first + 2])


def format_duration(seconds: float) -> str:
    """Return a duration as text: `0.4s`, `12s`, `3m 05s`, `2h 10m`, `3d 4h`."""
    seconds = max(0.0, seconds)
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    if whole < MINUTE:
        return f"{whole}s"
    if whole < HOUR:
        return f"{whole // MINUTE}m {whole % MINUTE:02}s"
    if whole < DAY:
        return f"{whole // HOUR}h {whole % HOUR // MINUTE:02}m"
    return f"{whole // DAY}d {whole % DAY // HOUR}h"


def format_age(seconds: float) -> str:
    """Return roughly how long ago something happened: `just now`, `3m ago`."""
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (1, "s")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit} ago"
    return "just now"


def format_money(usd: float) -> str:
    """Return an amount of money as text: `$0.0123`, `$1,234.5000`, `<$0.0001`."""
    return "<$0.0001" if 0 < usd < 0.0001 else f"${usd:,.4f}"


def join_words(words: Sequence[str], last: str = "and") -> str:
    """Join words as in a sentence: `a`, `a and b`, `a, b and c`."""
    return f"{', '.join(words[:-1])} {last} {words[-1]}" if len(words) > 1 else "".join(words)


def join_some(words: Sequence[str], most: int) -> str:
    """Return the first `most` words, separated by commas, and the number of the others: `a, b and 3 more`."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return f"{', '.join(words[:most])}{more}"


def fence_output(text: str) -> str:
    """Quote text for an agent, between fences that do not occur in the text."""
    fence = "`" * max(3, *(len(run) + 1 for run in ("", *re.findall("`+", text))))
    return f"{fence}\n{text}\n{fence}"


def split_at_commas(text: str) -> Iterator[str]:
    """Split `text` at its commas, except those inside parentheses: `a, b(c, d)` has two parts."""
    depth, start = 0, 0
    for match in re.finditer(r"[(),]", text):
        if match[0] == "(":
            depth += 1
        elif match[0] == ")":
            depth = max(0, depth - 1)
        elif depth == 0:
            yield text[start : match.start()]
            start = match.end()
    yield text[start:]


@cache
def emoji_characters() -> str:
    """Return all emoji characters, spaces and tabs; they can surround a name but are not part of it."""
    blocks = "".join(chr(code) for first, end in _EMOJI_BLOCKS for code in range(first, end))
    return f"{blocks}{_EMOJI_MODIFIERS} \t"


def strip_emoji(name: str) -> str:
    """Return a name without the emoji around it: `Ada 🔧` becomes `Ada`. A name that is only emoji is kept."""
    return name.strip(emoji_characters()) or name.strip()


def parse_size(text: str) -> int | None:
    """Parse a size such as `20GB`, `1.5 MB` or `500`, and return it in bytes.

    Return None if the text is not a size, or if it is not a whole number of bytes from 1 to MAX_SIZE.
    """
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        return None
    unit = next((size for name, size in UNITS.items() if name.casefold() == (found[2] or "B").casefold()), 1)
    # Computed with integers, because a float would not be exact.
    whole, _, part = found[1].partition(".")
    size, rest = divmod(int(whole + part) * unit, 10 ** len(part))
    return size if 0 < size <= MAX_SIZE and rest == 0 else None


def format_size(size: int) -> str:
    """Format a size with at most one decimal place: `3.2 GB`, `20 GB`, `812 B`."""
    for name, unit in reversed(UNITS.items()):
        if size >= unit:
            return f"{size / unit:.1f}".removesuffix(".0") + f" {name}"
    return "0 B"


def number_line(number: int, text: str) -> str:
    """Return a line with its number in front."""
    return f"{number:>{_WIDTH}}\t{text}"


def begins_numbered(text: str) -> bool:
    """Return whether a text begins with a number as `number_line` writes it, which no table has in its first column."""
    return _PADDED.match(text) is not None


def is_numbered(text: str) -> bool:
    """Return whether all lines of a text are numbered in order."""
    lines = text.rstrip("\n").split("\n")
    return _count_numbered(lines) == len(lines)


def remove_line_numbers(text: str) -> str:
    """Return the text without the numbers of the lines at its beginning that are numbered in order."""
    lines = text.split("\n")
    count = _count_numbered(lines)
    return "\n".join([line.partition("\t")[2] for line in lines[:count]] + lines[count:])


def _count_numbered(lines: list[str]) -> int:
    """Return how many of the first lines are numbered in order."""
    expected: int | None = None
    for place, line in enumerate(lines):
        found = _NUMBERED.match(line)
        if found is None or expected not in (None, int(found[1])):
            return place
        expected = int(found[1]) + 1
    return len(lines)
