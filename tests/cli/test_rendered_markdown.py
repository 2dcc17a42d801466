"""Text from agents on a terminal: Markdown is rendered, words are wrapped, and nothing acts on the terminal."""

from __future__ import annotations

import re
import time
from unicodedata import category

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from podium.cli.chat.reply_printer import MarkdownReplyPrinter
from podium.cli.output.rendered_markdown import (
    ASCII_SYMBOLS,
    LONGEST_TEXT,
    choose_markdown_symbols,
    render_markdown,
    split_finished_blocks,
)
from podium.cli.output.text import display_width
from podium.values.plain_text import HIDDEN_CATEGORIES

from .conftest import Desk
from .test_chat import send_line, start_chat
from .test_terminal import Terminal

STYLE = re.compile(r"\x1b\[[0-9;]+m")

PAGE = """\
# The plan

Use **bold** steps and `make test`, but never *guess*. This paragraph is long enough to be wrapped between its words.

- first
- second, with words enough to need another line on a small terminal
  1. inner

> quoted

```python
def f():

    return 1
```

| name | size |
|---|---:|
| alpha | 10 |
| beta | 2000 |

Read [the guide](https://example.com/guide)
or <https://example.com>.
"""

RENDERED = """\
The plan

Use bold steps and make test, but never
guess. This paragraph is long enough to
be wrapped between its words.

• first
• second, with words enough to need
  another line on a small terminal
  1. inner

│ quoted

  def f():

      return 1

name   size
───────────
alpha    10
beta   2000

Read the guide
(https://example.com/guide)
or https://example.com."""


def render(text: str, width: int = 40) -> str:
    """Return rendered text without its styles."""
    return STYLE.sub("", render_markdown(text, width=width, has_colours=True))


def test_a_page_is_rendered_and_wrapped() -> None:
    assert render(PAGE) == RENDERED


@pytest.mark.parametrize(
    ("source", "rendered"),
    [
        ("**a** *b* ~~c~~ `d`", "\x1b[1ma\x1b[0m \x1b[3mb\x1b[0m \x1b[9mc\x1b[0m \x1b[36md\x1b[0m"),
        ("# a *b*", "\x1b[1;4ma \x1b[0m\x1b[1;3;4mb\x1b[0m"),
        ("## a", "\x1b[1ma\x1b[0m"),
        ("***a** b*", "\x1b[1;3ma\x1b[0m\x1b[3m b\x1b[0m"),
        ("[a](b)", "a\x1b[2m (b)\x1b[0m"),
    ],
)
def test_emphasis_has_a_style(source: str, rendered: str) -> None:
    assert render_markdown(source, width=40, has_colours=True) == rendered


def test_without_colours_there_are_only_weights() -> None:
    assert render_markdown("**a** `b`", width=40, has_colours=False) == "\x1b[1ma\x1b[0m b"


@pytest.mark.parametrize(
    ("source", "rendered"),
    [
        ("roses are red\nviolets are blue", "roses are red\nviolets are blue"),
        ("List<int> and <details>x</details>", "List<int> and <details>x</details>"),
        ("<div>\nhtml\n</div>", "<div>\nhtml\n</div>"),
        ("snake_case_name, *.py and *.js", "snake_case_name, *.py and *.js"),
        ("2*3*4, 2**3**4, **so***me*", "2*3*4, 2**3**4, so*me*"),
        ("[https://bank.com](https://evil.com)", "https://bank.com (https://evil.com)"),
        ("<me@example.com>", "me@example.com"),
        ("![a cat](cat.png)", "image: a cat (cat.png)"),
        ("[ref]: http://a.b\nsee [it][ref]", "[ref]: http://a.b\nsee [it][ref]"),
        ("7) seven\n8) eight", "7) seven\n8) eight"),
        ("9. nine\n10. ten", " 9. nine\n10. ten"),
        ("- a\n\n- b", "• a\n\n• b"),
        ("- a\n-\n- b", "• a\n• \n• b"),
        ("> a\n>\n> b", "│ a\n│\n│ b"),
        ("```\nx\n```\n***", "  x\n\n" + "─" * 40),
        ("``` py run me first\nx\n```", "py run me first\n  x"),
        ("| a | b |\n|---|---|\n| x | y | z |", "| a | b |\n|---|---|\n| x | y | z |"),
        ("| a | b |\n|---|---|\n| x |", "a  b\n────\nx"),
        ("", ""),
    ],
)
def test_no_text_is_lost(source: str, rendered: str) -> None:
    assert render(source) == rendered


def test_code_and_long_words_are_left_to_the_terminal_so_that_they_can_be_copied() -> None:
    long = "https://example.com/" + "x" * 60

    assert render(f"see {long} there") == f"see\n{long}\nthere"
    assert render(f"```\n{long} {long}\n```") == f"  {long} {long}"


def test_cells_that_do_not_fit_are_wrapped() -> None:
    source = "| name | what it is |\n|---|---|\n| alpha | the first letter of a very old alphabet |\n"

    assert render(source, 30).split("\n") == [
        "name   what it is",
        "─" * 30,
        "alpha  the first letter of a",
        "       very old alphabet",
    ]


def test_a_table_with_too_many_columns_becomes_a_list() -> None:
    names = ["alphabet", "betatest", "gammaray", "deltawing"]
    source = f"|{'|'.join(names)}|\n{'|-' * 4}|\n|{'|'.join(name.upper() for name in names)}|\n"

    assert render(source, 24).split("\n") == [f"{name}: {name.upper()}" for name in names]


def test_symbols_fit_the_encoding() -> None:
    assert choose_markdown_symbols("ascii") is ASCII_SYMBOLS
    assert render_markdown("- a\n\n> b", width=40, has_colours=False, symbols=ASCII_SYMBOLS).isascii()


def test_a_very_long_text_is_printed_as_it_is() -> None:
    long = "**a** " * LONGEST_TEXT

    assert render(long) == long


HOSTILE = [
    "raw \x1b[2J\x1b]8;;http://evil\x07click\x1b]8;;\x07",
    "entity &#x202e;drawkcab&#x202c; &#27;[2J &#x9b;2J &#xad;",
    "[link](http://a.b/\x1b]8;;http://evil\x07)",
    "[link](http://a.b/&#x202e;x)",
    "<http://a.b/%E2%80%AE%1B>",
    "![\u202ealt](\u2066src)",
    "`code \x9b2J \u200b`",
    "```\x1b[31m\u202e now\n\x1b[2J\u2028\n```",
    "| \x1b[1mhead | b |\n|---|---|\n| \u202ecell | c |",
    "# \u2067heading\x00",
    "- \x08\x08\x08item\x7f",
    "a\rb\x85c",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_in_rendered_text_acts_on_the_terminal(text: str) -> None:
    rendered = render(text)

    assert "\x1b" not in rendered
    assert not [one for one in rendered if one != "\n" and category(one) in HIDDEN_CATEGORIES]


MARKS = st.sampled_from(
    [*"*_`~[]()<>#|>-+!&\\\n\n\n  \t", "word ", "tail", "1. ", "- ", "```", "| a | b |\n|-|-|\n", "&lt;"]
)


@settings(max_examples=150, deadline=None)
@example("```word ", 1)
@given(st.lists(MARKS, max_size=40).map("".join), st.integers(1, 60))
def test_words_survive_at_any_width(source: str, width: int) -> None:
    rendered = render(source, width)

    # What follows a fence names a language, which is not shown.
    shown = re.sub(r"(`{3,}|~{3,})[^\n]*", "", source)
    # A table cuts its words, and an address is encoded, so only letters are compared.
    assert len(re.findall("[wordtail]", rendered)) >= len(re.findall(r"word|tail", shown)) * 4


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["some words ", "**bold** ", "\n- item ", "\n\n", "`code` ", "日本語 "]), max_size=40))
def test_wrapped_lines_fit(pieces: list[str]) -> None:
    assert all(display_width(line) <= 30 for line in render("".join(pieces), 30).split("\n"))


class RecordingConsole:
    """A console that keeps what is printed. The rest of a chat is not used here."""

    can_render = True

    def __init__(self) -> None:
        self.printed: list[str] = []
        self.partial = ""

    def print_line(self, text: str) -> None:
        self.printed.append(text)

    def print_agent_text(self, text: str) -> None:
        self.printed.append(render(text))

    def show_partial_text(self, text: str) -> None:
        self.partial = text


@pytest.mark.parametrize("size", [1, 3, 7, 50, 10_000])
def test_a_streamed_reply_looks_as_if_it_had_come_at_once(size: int) -> None:
    console = RecordingConsole()
    reply = MarkdownReplyPrinter(console)  # type: ignore[arg-type]  # it needs only this part of a console

    for start in range(0, len(PAGE), size):
        reply.add_text(PAGE[start : start + size])
    reply.end_text()

    assert "\n".join(console.printed) == RENDERED
    assert console.partial == ""


def test_a_block_is_printed_as_soon_as_the_next_one_begins() -> None:
    console = RecordingConsole()
    reply = MarkdownReplyPrinter(console)  # type: ignore[arg-type]  # it needs only this part of a console

    reply.add_text("The *first* block.\n\n- the second")
    before = list(console.printed)
    reply.add_text(" block\n")

    assert (before, console.printed) == ([], ["The first block."])
    assert console.partial == "\n- the second block\n"


def test_a_code_block_with_empty_lines_is_one_block() -> None:
    code = "```\na\n\nb\n\nc"

    assert split_finished_blocks(code) == ("", code)
    assert split_finished_blocks(f"{code}\n```\n\nText") == (f"{code}\n```\n", "Text")


# On real terminals


ANSWER = (
    "# Result\n\nIt is **done**: `make` passed, and this sentence is long enough to be wrapped at eighty columns.\n"
)


@pytest.mark.parametrize("columns", [80, 140])
def test_run_show_and_results_render_the_answer(desk: Desk, columns: int) -> None:
    desk.write_agent("lead", ANSWER)
    terminals = [Terminal(desk, "run", "lead", "go", columns=columns)]
    assert terminals[0].wait_exit() == 0
    terminals += [Terminal(desk, command, desk.run_id(), columns=columns) for command in ("show", "results")]

    assert [terminal.wait_exit() for terminal in terminals[1:]] == [0, 0]
    for terminal in terminals:
        start = terminal.lines.index("Result")
        words = " ".join(terminal.lines[start + 2 : start + (4 if columns == 80 else 3)])
        assert words == "It is done: make passed, and this sentence is long enough to be wrapped at eighty columns."
        assert terminal.screen.buffer[start][0].bold


def test_off_a_terminal_the_text_is_unchanged(desk: Desk) -> None:
    desk.write_agent("lead", ANSWER)

    piped = desk.run_podium("run", "lead", "go", TERM="xterm")
    shown = desk.run_podium("show", desk.run_id(), TERM="xterm")

    assert piped.stdout == ANSWER + "\n"
    assert ANSWER in shown.stdout


@pytest.mark.parametrize(("options", "kind"), [(["--plain"], "xterm"), ([], "dumb")])
def test_plain_output_is_not_rendered(desk: Desk, options: list[str], kind: str) -> None:
    desk.write_agent("lead", "**done**")

    terminal = Terminal(desk, "run", "lead", "go", *options, TERM=kind)

    assert terminal.wait_exit() == 0
    assert "**done**" in terminal.lines


def test_partial_results_are_rendered(desk: Desk) -> None:
    desk.write_agent("chief", "a **draft**", handoff="second")
    desk.write_agent("second", {"fails": {"status": 400}})

    terminal = Terminal(desk, "run", "chief", "go")

    assert terminal.wait_exit() == 1
    assert "a draft" in terminal.lines


def test_a_reply_in_a_chat_is_rendered(desk: Desk) -> None:
    desk.write_agent("lead", {"says": f"{ANSWER}\n\n- one\n- two\n", "pieces": 9, "pace": 0.2})
    terminal = start_chat(desk, "lead")

    send_line(terminal, "go")
    terminal.wait_for("1 model call")
    terminal.process.sendcontrol("d")

    assert terminal.wait_exit() == 0
    start = terminal.lines.index("Result")
    assert terminal.lines[start : start + 7] == [
        "Result",
        "",
        "It is done: make passed, and this sentence is long enough to be wrapped at",
        "eighty columns.",
        "",
        "• one",
        "• two",
    ]
    assert sum("wrapped at" in line for line in terminal.lines) == 1


def test_the_end_of_an_unfinished_block_is_shown_in_a_chat(desk: Desk) -> None:
    said = "".join(f"line {number}\n" for number in range(40))
    desk.write_agent("lead", {"says": f"{said}the end of the block", "pieces": 60, "pace": 0.1})
    terminal = start_chat(desk, "lead")

    send_line(terminal, "go")
    partial = terminal.wait_for("line 30")
    terminal.wait_for("1 model call")
    terminal.process.sendcontrol("d")

    assert "line 29" in partial
    assert "line 15" not in partial
    assert terminal.wait_exit() == 0


def test_rendering_in_a_chat_needs_no_more_rows_than_there_are(desk: Desk) -> None:
    desk.write_agent("lead", {"says": "- " + "\n- ".join("abcdefghij") + "\n\nThe **end**.", "pieces": 9, "pace": 0.1})
    terminal = Terminal(desk, "chat", "lead", rows=9, columns=30)
    terminal.wait_for("lead>")

    send_line(terminal, "go")
    terminal.wait_for("1 model call")
    terminal.process.sendcontrol("d")

    assert terminal.wait_exit() == 0
    assert "The end." in terminal.lines


LONG = 90_000
PATTERNS = (
    *("*", "_", "~", "[", "]", "`", ">", "<", "&", "!", "|", "\\", "-", "_a", "*a ", "a*", "***a", "~~a", "**a *b "),
    *("[a](", "![", "[](", "[a](b)", "[[a]", "[`", "<a", "<!--", "<http://a>", "&amp;", "(", "word "),
    *("a\n", "a\r", "a\n\n", "- a\n", "1) a\n", "# a\n", "- ", "1. ", "> ", "> - ", "> a\n", "```\n", "    a\n"),
    *("a|b\n-|-\n", "| a |\n", "a\n-\n", "a\\\n", "\t", "\u65e5", "\x1b"),
)
COSTLY = {
    **{f"{pattern!r} repeated": pattern * (LONG // len(pattern)) for pattern in PATTERNS},
    "nested emphasis": "*a " * (LONG // 6) + " a*" * (LONG // 6),
    "nested links": "[" * (LONG // 6) + "](a)" * (LONG // 6),
    "nested lists": "\n".join("  " * depth + "- a" for depth in range(300)),
    "backquotes of growing number": " ".join("`" * count for count in range(420)),
    "a quote with lines that have no mark": ">" * 19 + "a\n" + "aaa\n" * (LONG // 4),
    "a quote with fewer lines": ">" * 19 + "a\n" + "a" * 9 + "\n" + "aaaaaaaa\n" * (LONG // 9),
    "rows without most of their cells": f"{'|'.join(['a'] * 99)}\n{'|'.join(['-'] * 99)}\n" + "xxxx\n" * (LONG // 5),
}


@pytest.mark.parametrize("name", COSTLY)
def test_no_text_takes_seconds_to_render(name: str) -> None:
    started = time.process_time()

    shown = render(COSTLY[name])
    split_finished_blocks(COSTLY[name])

    assert time.process_time() - started < 3
    assert len(shown) < 10 * LONG


def test_a_long_document_is_rendered() -> None:
    shown = render(PAGE * (LONG // len(PAGE)), width=80)

    assert "**" not in shown
    assert shown.count("\u2022 first") == LONG // len(PAGE)
