"""Reading and writing files with an agent's tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from podium.core.gate import InvalidCall
from podium.tools.read_write_files import LARGEST_ANSWER, ReadFile, WriteFile
from podium.tools.unified_diff import COMPARED, build_unified_diff

from .doing import call_tool, make_started_action, make_tool_use


async def test_lines_come_with_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("\ufeffone\r\ntwo\u2028still two\n\nlast".encode())

    answer = await call_tool(ReadFile(tmp_path), path="a.txt")

    assert answer.text == "     1\tone\n     2\ttwo\u2028still two\n     3\t\n     4\tlast"


async def test_a_part_of_a_file_says_how_to_get_the_next(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{n}\n" for n in range(1, 101)))
    tool = ReadFile(tmp_path)

    assert (await call_tool(tool, path="a.txt", offset=3, limit=2)).text == (
        "     3\t3\n     4\t4\n[a.txt continues; to read more, use offset=5]"
    )
    assert (await call_tool(tool, path="a.txt", offset=99, limit=2)).text == "    99\t99\n   100\t100"
    assert (await call_tool(tool, path="a.txt", offset=0, limit=1)).text.startswith("     1\t1\n")


async def test_a_small_file_is_returned_whole(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    whole = "     1\tone\n     2\ttwo\n     3\tthree"

    for part in ({"offset": 0}, {"offset": 2, "limit": 1}, {"offset": 40}):
        answer = await call_tool(ReadFile(tmp_path), path="a.txt", **part)
        assert (answer.is_error, answer.text) == (False, whole)


async def test_long_lines_and_long_files_are_cut_visibly(tmp_path: Path) -> None:
    (tmp_path / "wide").write_text("x" * 1_000_000 + "\nnext\n")
    (tmp_path / "long").write_text("0123456789abcdef\n" * 100_000)
    tool = ReadFile(tmp_path)

    wide = await call_tool(tool, path="wide")
    long = await call_tool(tool, path="long", limit=100_000)

    assert "[line truncated; it has 1000001 bytes]" in wide.text
    assert wide.text.endswith("     2\tnext")
    assert len(wide.text) < 3000
    assert "[long continues; to read more, use offset=" in long.text
    assert len(long.text) < LARGEST_ANSWER + 200


async def test_an_empty_file_and_an_offset_beyond_the_end_are_reported(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "long").write_text("one\n" * 60)

    assert (await call_tool(ReadFile(tmp_path), path="empty")).text == "[empty is empty]"
    beyond = await call_tool(ReadFile(tmp_path), path="long", offset=61)
    assert (beyond.is_error, beyond.text) == (True, "long has 60 lines; use an offset up to 60.")


async def test_a_binary_file_is_refused_with_its_kind_and_size(tmp_path: Path) -> None:
    (tmp_path / "p.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\0")

    with pytest.raises(InvalidCall, match="a PNG image of 12 bytes, not UTF-8 text"):
        await call_tool(ReadFile(tmp_path), path="p.png")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            {},
            "read_file was called without the required argument `path`; the tool takes `path`, `offset` and `limit`.",
        ),
        ({"path": "a", "cwd": "/"}, "read_file has no argument `cwd`; it takes `path`, `offset` and `limit`."),
        ({"path": 3}, "read_file got an invalid `path`: expected `str`, got `int`."),
        ({"path": "a", "offset": -1}, "read_file got an invalid `offset`: expected `int` >= 0."),
        ({"path": "a"}, "a does not exist; use glob to find files."),
        ({"path": "."}, ". is a directory; use the path of a file."),
    ],
)
async def test_an_invalid_call_is_refused_with_what_would_work(
    tmp_path: Path, arguments: dict[str, Any], said: str
) -> None:
    tool = ReadFile(tmp_path)

    with pytest.raises(InvalidCall) as refused:
        await tool.prepare(make_tool_use(tool, **arguments))

    assert str(refused.value) == said


async def test_preparing_a_write_shows_all_and_does_nothing(tmp_path: Path) -> None:
    tool = WriteFile(tmp_path)

    prepared = await tool.prepare(make_tool_use(tool, path="./new//a.txt", content="one\ntwo"))

    assert prepared.arguments == {"path": "new/a.txt", "content": "one\ntwo"}
    assert (
        prepared.shown == "--- /dev/null\n+++ b/new/a.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n\\ No newline at end of file\n"
    )
    assert prepared.changed_lines == 2
    assert prepared.inputs == {"new/a.txt": ""}
    assert list(tmp_path.iterdir()) == []


async def test_writing_creates_and_overwrites(tmp_path: Path) -> None:
    tool = WriteFile(tmp_path)

    created = await call_tool(tool, path="new/deep/a.txt", content="one\ntwo\n")
    overwritten = await call_tool(tool, path="new/deep/a.txt", content="three")

    assert created.text == "Created new/deep/a.txt with 2 lines."
    assert overwritten.text == "Overwrote new/deep/a.txt; it now has 1 line."
    assert (tmp_path / "new/deep/a.txt").read_text() == "three"


async def test_content_with_the_line_numbers_of_read_file_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f():\n    return 1\n")
    shown = (await call_tool(ReadFile(tmp_path), path="a.py")).text
    tool = WriteFile(tmp_path)

    with pytest.raises(InvalidCall, match="begins with the line numbers that read_file shows"):
        await tool.prepare(make_tool_use(tool, path="a.py", content=shown))
    with pytest.raises(InvalidCall, match="begins with the line numbers that read_file shows"):
        await tool.prepare(make_tool_use(tool, path="a.py", content="1\tdef f():\n2\t    return 2"))
    await call_tool(tool, path="table.tsv", content="1\tone\n2\ttwo\n")

    assert (tmp_path / "a.py").read_text() == "def f():\n    return 1\n"
    assert (tmp_path / "table.tsv").read_text() == "1\tone\n2\ttwo\n"


async def test_a_binary_file_may_be_replaced_and_the_person_is_informed(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"\xff\0")
    tool = WriteFile(tmp_path)

    prepared = await tool.prepare(make_tool_use(tool, path="b", content="text\n"))
    await prepared.act()

    assert prepared.shown.startswith("b already exists, but is not text")
    assert (tmp_path / "b").read_text() == "text\n"


async def test_a_file_that_changed_after_it_was_shown_is_left_alone(tmp_path: Path) -> None:
    tool = WriteFile(tmp_path)
    prepared = await tool.prepare(make_tool_use(tool, path="a.txt", content="mine"))
    (tmp_path / "a.txt").write_text("theirs")

    with pytest.raises(InvalidCall, match="has changed since this call started"):
        await prepared.act()

    assert (tmp_path / "a.txt").read_text() == "theirs"


async def test_half_a_character_is_refused(tmp_path: Path) -> None:
    tool = WriteFile(tmp_path)

    with pytest.raises(InvalidCall, match="contains an invalid character"):
        await tool.prepare(make_tool_use(tool, path="a.txt", content="\ud800"))


async def test_a_write_cut_short_by_a_crash_is_recovered(tmp_path: Path) -> None:
    tool = WriteFile(tmp_path)
    prepared = await tool.prepare(make_tool_use(tool, path="a.txt", content="mine\n"))
    action = make_started_action(tool, prepared)

    assert await tool.recover(action) is None
    said = await prepared.act()
    assert await tool.recover(action) == said
    (tmp_path / "a.txt").write_text("theirs")
    overtaken = await tool.recover(action)
    assert overtaken is not None
    assert overtaken.is_error
    assert "something else has changed the file" in overtaken.text


def test_a_change_too_large_to_compare_is_shown_whole() -> None:
    old = "".join(f"old {n}\n" for n in range(COMPARED))
    new = "".join(f"new {n}\n" for n in range(COMPARED))

    difference = build_unified_diff("f", f"head\n{old}tail\n", f"head\n{new}tail\n")

    assert difference.changed_lines == 2 * COMPARED
    assert f"@@ -1,{COMPARED + 2} +1,{COMPARED + 2} @@\n head\n-old 0\n" in difference.text
    assert difference.text.endswith(f"+new {COMPARED - 1}\n tail\n")
