"""Render Markdown from agents for a terminal: headings, lists, emphasis, code, links and tables.

All text is shown, except the titles of links and the languages of code blocks. HTML is shown as source text, a link is
followed by its address, and code is not wrapped. The text is untrusted: every piece is escaped after parsing, because
entities and encoded addresses can produce characters that the source does not contain.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import Literal, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from .text import count_fitting, display_width, escape_for_terminal

GAP = 2
NARROWEST_COLUMN = 8
"""If a table column would be narrower than this many terminal columns, each cell is printed on a separate line."""


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

LONGEST_TEXT = 100_000
"""The maximum number of characters to render. Parsing a longer text could take seconds."""
MOST_MARKS = 32_000
"""The maximum number of characters that can start or end a part of the text. The end of a line counts twice."""
MOST_CELLS = 20_000
"""The maximum number of cells that tables can have. The parser adds the cells that a row leaves out."""
MOST_NESTED_LINES = 40_000
"""The maximum number of lines, each counted once for every quote or list that it could be in."""
NARROWEST = 20
"""The minimum width of a block. The terminal wraps the lines of deeply nested blocks that would need to be narrower."""
LONGEST_RULE = 40
INLINE_STYLES: dict[str, TextStyle] = {"em": "italic", "strong": "bold", "s": "strike"}

Cell = Sequence[Span]

BOLD, RULE_STYLE = frozenset[TextStyle]({"bold"}), frozenset[TextStyle]({"dim"})
CODE, DIM = frozenset[TextStyle]({"code"}), frozenset[TextStyle]({"dim"})
# Reference links are disabled, because a link may be shown long before its definition arrives.
_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("reference")
_MARKS = "*_~`[]!<>&|\\\r\n\n"
_EMPTY_LINE = re.compile(r"(?:\r\n?|\n)[ \t]*(?:\r\n?|\n)")
_CONTAINER = re.compile(r"[ \t]*(?:>|[-+*](?=\s)|\d{1,9}[.)](?=\s))")
_LANGUAGE = re.compile(r"[\w+#.-]*")
_CELL_END = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkdownSymbols:
    """The characters used to draw lists, quotes and rules."""

    bullet: str = "•"
    quote: str = "│"
    rule: str = "─"


UNICODE_SYMBOLS = MarkdownSymbols()
ASCII_SYMBOLS = MarkdownSymbols(bullet="-", quote="|", rule="-")


def choose_markdown_symbols(encoding: str | None) -> MarkdownSymbols:
    """Return the symbols that an encoding can represent."""
    try:
        "•│─".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII_SYMBOLS
    return UNICODE_SYMBOLS


def render_markdown(text: str, *, width: int, has_colours: bool, symbols: MarkdownSymbols = UNICODE_SYMBOLS) -> str:
    """Return Markdown as text with terminal escape codes, wrapped to `width` columns."""
    if _is_costly(text):
        return escape_for_terminal(text)
    lines = _BlockRenderer(text, symbols).render_blocks(_PARSER.parse(text), width)
    return "\n".join(_format_styled_line(line, has_colours=has_colours) for line in lines)


def _is_costly(text: str) -> bool:
    """Return whether parsing and rendering this text could take seconds. It is then shown as it is.

    The time depends on the number of marks, lines and cells much more than on the length of the text. Only upper bounds
    are counted here: a table ends at an empty line, and a line without a mark continues the quote above it.
    """
    if len(text) > LONGEST_TEXT or sum(map(text.count, _MARKS)) > MOST_MARKS:
        return True
    cells = nested = 0
    for group in _EMPTY_LINE.split(text):
        lines = _split_source(group)
        cells += len(lines) * max(line.count("|") for line in lines)
        nested += len(lines) * max(map(_count_containers, lines))
    return cells > MOST_CELLS or nested > MOST_NESTED_LINES


def split_finished_blocks(text: str) -> tuple[str, str]:
    """Split incomplete Markdown into the blocks that further text cannot change, and the last block.

    Markdown that takes long to parse is one finished block.
    """
    if _is_costly(text):
        return text, ""
    starts = [block[0].map[0] for block in _split_blocks(_PARSER.parse(text)) if block[0].map is not None]
    lines = _split_source(text)
    last = starts[-1] if starts else 0
    return "\n".join(lines[:last]), "\n".join(lines[last:])


def _split_blocks(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Yield the tokens of each top-level block."""
    start = depth = 0
    for number, token in enumerate(tokens):
        depth += token.nesting
        if depth == 0:
            yield tokens[start : number + 1]
            start = number + 1


class _BlockRenderer:
    """Renders blocks into lines."""

    def __init__(self, source: str, symbols: MarkdownSymbols) -> None:
        self._source = _split_source(source)
        self._symbols = symbols

    def render_blocks(self, tokens: Sequence[Token], width: int) -> list[Line]:
        """Return the lines of all blocks, with an empty line between them, except in a tight list."""
        lines: list[Line] = []
        is_tight = False
        for block in _split_blocks(tokens):
            if lines and not is_tight:
                lines.append([])
            is_tight = block[0].hidden
            lines += self._render_block(block, max(width, NARROWEST))
        return lines

    def _render_block(self, block: Sequence[Token], width: int) -> list[Line]:
        match block[0].type:
            case "heading_open":
                return _wrap_spans(_format_inline(block[1:-1], _heading_styles(block[0])), width)
            case "bullet_list_open" | "ordered_list_open":
                return self._render_list(block, width)
            case "blockquote_open":
                inner = self.render_blocks(block[1:-1], width - 2)
                return [
                    [Span(f"{self._symbols.quote} " if line else self._symbols.quote, DIM), *line] for line in inner
                ]
            case "fence" | "code_block":
                return _render_code(block[0])
            case "hr":
                return [[Span(self._symbols.rule * min(width, LONGEST_RULE), DIM)]]
            case "table_open":
                return self._render_table(block, width)
        return _wrap_spans(_format_inline(block), width)

    def _render_list(self, block: Sequence[Token], width: int) -> list[Line]:
        items = list(_split_blocks(block[1:-1]))
        is_loose = any(token.type == "paragraph_open" and not token.hidden for item in items for token in item[1:2])
        number = int(block[0].attrs.get("start", 1))
        marks = [
            f"{number + place}{block[0].markup} "
            if block[0].type == "ordered_list_open"
            else f"{self._symbols.bullet} "
            for place in range(len(items))
        ]
        indent = max(map(len, marks))
        lines: list[Line] = []
        for mark, item in zip(marks, items, strict=True):
            inner = self.render_blocks(item[1:-1], width - indent) or [[]]
            lines += [[]] if lines and is_loose else []
            lines += [[Span(mark.rjust(indent)), *inner[0]]]
            lines += [[Span(" " * indent), *line] if line else [] for line in inner[1:]]
        return lines

    def _render_table(self, block: Sequence[Token], width: int) -> list[Line]:
        rows: list[list[list[Span]]] = []
        is_right = []
        for token in block:
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "th_open":
                is_right.append(token.attrs.get("style") == "text-align:right")
            elif token.type == "inline":
                rows[-1].append(list(_format_inline([token])))
        assert block[0].map is not None
        source = self._source[slice(*block[0].map)]
        if any(_count_cells(line) > len(is_right) for line in source[2:]):
            # The parser drops cells that have no header, so show the source text of the table.
            return [[Span(escape_for_terminal(line))] for line in source]
        return _layout_table(rows, width, is_right=is_right, rule=self._symbols.rule)


def _split_source(source: str) -> list[str]:
    """Split Markdown into lines in the same way as the parser."""
    return re.split(r"\r\n?|\n", source)


def _count_cells(row: str) -> int:
    return len(_CELL_END.findall(row.strip(" \t>").strip("|"))) + 1


def _count_containers(line: str) -> int:
    """Return the number of quotes and lists that this line opens or continues, up to the depth that is parsed."""
    number = end = 0
    while number < _PARSER.options["maxNesting"] and (mark := _CONTAINER.match(line, end)):
        number, end = number + 1, mark.end()
    return number


def _render_code(token: Token) -> list[Line]:
    text = escape_for_terminal(token.content).removesuffix("\n")
    lines = [[Span(f"  {line}" if line else "", CODE)] for line in text.split("\n")]
    info = token.info.strip()
    return lines if _LANGUAGE.fullmatch(info) else [[Span(escape_for_terminal(info), DIM)], *lines]


def _heading_styles(token: Token) -> Iterable[TextStyle]:
    return ("bold", "underline") if token.tag == "h1" else ("bold",)


def _format_inline(tokens: Iterable[Token], styles: Iterable[TextStyle] = ()) -> Iterator[Span]:
    """Yield the text of inline tokens with its styles. Line breaks in the source are preserved."""
    inline = _InlineFormatter(styles)
    for token in (child for parent in tokens for child in parent.children or ()):
        if text := escape_for_terminal(inline.take_text(token)):
            yield Span(text, inline.find_styles(token))


class _InlineFormatter:
    """Tracks the emphasis and the link around the current inline token."""

    def __init__(self, styles: Iterable[TextStyle]) -> None:
        self._styles = frozenset(styles)
        self._open: list[TextStyle | None] = []
        """The style of each open emphasis mark, or None for a mark inside a word (`2*3*4`); such a mark is printed."""
        self._counts = Counter[TextStyle]()
        """How often each style is open: there can be thousands of marks, and every piece of text needs the styles."""
        self._last = self._address = self._link_text = ""

    def find_styles(self, token: Token) -> frozenset[TextStyle]:
        own = CODE if token.type == "code_inline" else DIM if token.type == "link_close" else frozenset[TextStyle]()
        return self._styles | own | {style for style, count in self._counts.items() if count}

    def take_text(self, token: Token) -> str:
        """Return the text of the next token. It is empty for most marks, such as `**`."""
        text = self._format_token(token)
        self._last = text or self._last
        self._link_text += text
        return text

    def _format_token(self, token: Token) -> str:
        match token.type:
            case "em_open" | "strong_open" | "s_open":
                is_inside_word = self._last[-1:].isalnum()
                self._open.append(None if is_inside_word else INLINE_STYLES[token.tag])
                self._counts[INLINE_STYLES[token.tag]] += not is_inside_word
                return token.markup if is_inside_word else ""
            case "em_close" | "strong_close" | "s_close":
                if (style := self._open.pop()) is None:
                    return token.markup
                self._counts[style] -= 1
                return ""
            case "link_open":
                self._address, self._link_text = str(token.attrs.get("href", "")), ""
                return ""
            case "link_close":
                is_shown = self._link_text == self._address.removeprefix("mailto:")
                return "" if is_shown or not self._address else f" ({self._address})"
            case "softbreak" | "hardbreak":
                return "\n"
            case "image":
                return f"image: {token.content} ({token.attrs.get('src', '')})"
        return token.content.replace("\t", " ")


def _measure_line(line: Iterable[Span]) -> int:
    """Return the width of a line in columns."""
    return sum(display_width(span.text) for span in line)


def _wrap_spans(spans: Iterable[Span], width: int, *, cuts_words: bool = False) -> list[Line]:
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
            size = _measure_line(word)
            if lines[-1] and used + _measure_line(gap) + size > width:
                lines.append([])
                used, gap = 0, []
            used += _measure_line(gap) + size
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
            fitting = count_fitting(text, width - _measure_line(parts[-1]))
            if not fitting and parts[-1]:
                parts.append([])
                continue
            fitting = fitting or 1
            parts[-1].append(Span(text[:fitting], styles))
            text = text[fitting:]
    return parts


def _format_styled_line(line: Line, *, has_colours: bool) -> str:
    """Return a line with the terminal escape codes for its styles."""
    return "".join(
        _format_span("".join(span.text for span in spans), styles, has_colours)
        for styles, spans in groupby(line, key=lambda span: span.styles)
    )


def _format_span(text: str, styles: frozenset[TextStyle], has_colours: bool) -> str:
    codes = [CODES[style] for style in CODES if style in styles and (has_colours or style not in COLOURS)]
    return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if codes and text else text


def _layout_table(rows: Sequence[Sequence[Cell]], width: int, *, is_right: Sequence[bool], rule: str) -> list[Line]:
    """Return the lines of a table whose first row is the header. Cells that do not fit are wrapped."""
    widths = _choose_widths(rows, width)
    if widths is None:
        return _list_cells(rows, width)
    header, *body = [_layout_row(row, widths, is_right) for row in rows]
    bold = [[Span(text, styles | BOLD) for text, styles in line] for line in header]
    between = Span(rule * (sum(widths) + GAP * (len(widths) - 1)), RULE_STYLE)
    return [*bold, [between], *(line for lines in body for line in lines)]


def _choose_widths(rows: Sequence[Sequence[Cell]], width: int) -> list[int] | None:
    """Return column widths that make the table fit, or None if the columns would become too narrow."""
    widths = [max(map(_measure_cell, column)) for column in zip(*rows, strict=True)]
    room = width - GAP * (len(widths) - 1)
    while sum(widths) > room:
        widest = max(widths)
        if widest <= NARROWEST_COLUMN:
            return None
        # Narrow only the widest columns, and never below the width of the next widest column.
        count = widths.count(widest)
        target = max([NARROWEST_COLUMN, *(one for one in widths if one < widest)])
        target = max(target, widest - -(-(sum(widths) - room) // count))
        widths = [target if one == widest else one for one in widths]
    return widths


def _measure_cell(cell: Cell) -> int:
    """Return the width of the widest line of a cell, in terminal columns."""
    return max(map(_measure_line, _wrap_spans(cell, sum(len(span.text) * 2 for span in cell) + 1)))


def _layout_row(row: Sequence[Cell], widths: Sequence[int], is_right: Sequence[bool]) -> list[Line]:
    """Return the lines of a row."""
    columns = [_wrap_spans(cell, wide, cuts_words=True) for cell, wide in zip(row, widths, strict=True)]
    lines = []
    for parts in zip_longest(*columns, fillvalue=()):
        line: Line = []
        missing = 0
        for part, wide, right in zip(parts, widths, is_right, strict=True):
            padding = wide - _measure_line(part)
            line += [Span(" " * (missing + padding * right)), *part] if part else []
            missing = GAP + padding * (not right) if part else missing + GAP + wide
        lines.append(line)
    return lines


def _list_cells(rows: Sequence[Sequence[Cell]], width: int) -> list[Line]:
    """Return the lines of a table where each cell starts on a new line, labelled with the header of its column."""
    lines: list[Line] = []
    for number, row in enumerate(rows[1:]):
        lines += [[]] if number else []
        for head, cell in zip(rows[0], row, strict=True):
            label = [Span(text, styles | BOLD) for text, styles in head]
            lines += _wrap_spans([*label, Span(": " if label else ""), *cell], width)
    return lines
