"""The syntax of the lines in a diff, found by the real program in a process of its own."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from podium.views.diff_hunks import DiffLine, parse_diff
from podium.web.api.diff_syntax import MOST_CHARACTERS, DiffSyntax, find_language


def make_diff(path: str, *lines: str) -> str:
    """Return a diff of one file with one hunk; each line begins with its mark."""
    old = sum(line[0] in "- " for line in lines)
    new = sum(line[0] in "+ " for line in lines)
    head = f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1,{old} +1,{new} @@\n"
    return head + "".join(f"{line}\n" for line in lines)


async def find_parts(diff: str, syntax: DiffSyntax | None = None) -> list[Any]:
    """Return the parts of each line as a browser cuts them, or None for a line without syntax."""
    files = parse_diff(diff).files
    await (syntax or DiffSyntax()).add_to(files)
    return [_cut(line) for file in files for hunk in file.hunks for line in hunk.lines]


def _cut(line: DiffLine) -> list[tuple[str, str]] | None:
    text = line.text.encode("utf-16-le")
    if line.syntax is UNSET:
        return None
    return [(text[2 * first : 2 * end].decode("utf-16-le"), kind) for first, end, kind in line.syntax]


async def test_old_and_new_lines_get_the_syntax_of_their_own_side() -> None:
    diff = make_diff(
        "a.py", " def go():", '-    """Old', '-    text."""', "+    # New", "     return 1", "\\ No newline"
    )

    assert await find_parts(diff) == [
        [("def", "keyword"), ("go", "name")],
        [('"""Old', "string")],
        [('    text."""', "string")],
        [("# New", "comment")],
        [("return", "keyword"), ("1", "number")],
        None,
    ]


async def test_positions_are_those_of_a_browser_and_strange_characters_change_nothing_else() -> None:
    diff = make_diff(
        "a.js", "+const a = '\U0001f600\u202e'; // \U0001f600", "+<script>alert(1)</script>\r", "+\x00\x1b[31m 7"
    )

    first, _, last = await find_parts(diff)

    assert first == [("const", "keyword"), ("'\U0001f600\u202e'", "string"), ("// \U0001f600", "comment")]
    assert ("7", "number") in last


async def test_files_of_unknown_languages_cut_lines_and_more_than_the_limit_stay_plain() -> None:
    known = make_diff("b.py", "+x = 1")
    unknown = make_diff("b.nothing", "+x = 1")
    cut = make_diff("c.py", "+y = 1", f"+z = '{'x' * 5000}'")
    long = make_diff("d.py", *(f"+{'x' * 3000} = {number}" for number in range(MOST_CHARACTERS // 3000 + 1)))

    parts = await find_parts(unknown + cut + long + known)

    assert set(map(str, parts[:-1])) == {"None"}
    assert parts[-1] is None  # the limit is for the whole diff
    assert await find_parts(unknown + cut + known) == [None, None, None, [("1", "number")]]


async def test_a_file_that_takes_too_long_stays_plain_and_others_are_not_affected() -> None:
    syntax = DiffSyntax(seconds=0.001)
    diff = make_diff("slow.py", "+x = 1")

    assert await find_parts(diff, syntax) == [None]
    assert await find_parts(diff, syntax) == [None]
    assert await find_parts(diff) == [[("1", "number")]]


def test_a_language_is_known_by_the_ending_or_by_the_name() -> None:
    names = ["src/A.PY", "Dockerfile", "x/Makefile", "README", "py", "a.unknown", ""]

    assert [find_language(name) for name in names] == ["python", "docker", "make", None, None, None, None]
