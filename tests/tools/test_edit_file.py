"""Changing parts of files: exactly, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.core.gate import InvalidCall
from podium.tools.edit_file import Edit, EditFile, apply_edits

from .doing import call_tool, make_started_action, make_tool_use


async def test_one_text_replaces_another(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def a():\n    return 1\n")
    tool = EditFile(tmp_path)

    prepared = await tool.prepare(make_tool_use(tool, path="a.py", old_text="return 1", new_text="return 2"))
    answer = await prepared.act()

    assert answer.text == "Edited a.py: 1 edit."
    assert (tmp_path / "a.py").read_text() == "def a():\n    return 2\n"
    assert prepared.shown == "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n def a():\n-    return 1\n+    return 2\n"
    assert prepared.changed_lines == 2


async def test_several_edits_are_done_in_order_each_on_what_the_one_before_left(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x y x\n")

    edits = [{"old_text": "x", "new_text": "z", "replace_all": True}, {"old_text": "z y", "new_text": "y z"}]
    await call_tool(EditFile(tmp_path), path="a", edits=edits)

    assert (tmp_path / "a").read_text() == "y z z\n"


async def test_all_edits_are_done_or_none(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\n")
    tool = EditFile(tmp_path)

    with pytest.raises(
        InvalidCall, match=r"in edit 2 of 2, `old` was not found\. The most similar line is line 2: two"
    ):
        edits = [{"old_text": "one", "new_text": "1"}, {"old_text": "twoo", "new_text": "2"}]
        await call_tool(tool, path="a", edits=edits)

    assert (tmp_path / "a").read_text() == "one\ntwo\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"old_text": "same", "new_text": "x"}, r"occurs 2 times \(lines 1, 3\)"),
        ({"old_text": "  other", "new_text": "x"}, "The first line of `old` is line 2"),
        ({"old_text": "nothing like it", "new_text": "x"}, "Read the file again"),
        ({"old_text": "", "new_text": "x"}, "`old` is empty"),
        ({"old_text": "other", "new_text": "other"}, "are the same"),
        ({"old_text": "other"}, "called without the required argument `new`"),
        ({}, "called without the required argument `old`"),
        ({"old_text": "a", "new_text": "b", "edits": [{"old_text": "a", "new_text": "b"}]}, "not both"),
        ({"edits": [{"old_text": "a"}]}, r"without the required argument `edits\[0\]\.new_text`"),
    ],
)
async def test_an_edit_that_cannot_be_done_says_why(tmp_path: Path, arguments: dict[str, Any], said: str) -> None:
    (tmp_path / "a").write_text("same\nother\nsame\n")

    with pytest.raises(InvalidCall, match=said):
        await call_tool(EditFile(tmp_path), path="a", **arguments)

    assert (tmp_path / "a").read_text() == "same\nother\nsame\n"


async def test_line_endings_and_the_byte_order_mark_stay(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("\ufeffone\r\ntwo\r\nthree".encode())

    await call_tool(EditFile(tmp_path), path="a", old_text="one\ntwo\n", new_text="1\n2\n2b\n")

    assert (tmp_path / "a").read_bytes() == "\ufeff1\r\n2\r\n2b\r\nthree".encode()


async def test_a_file_with_mixed_line_endings_keeps_each(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\r\ntwo\nthree\r\nfour\n")
    tool = EditFile(tmp_path)

    await call_tool(tool, path="a", old_text="two\n", new_text="2\n")
    await call_tool(tool, path="a", old_text="three\nfour", new_text="3\n4")

    assert (tmp_path / "a").read_bytes() == b"one\r\n2\n3\r\n4\n"


async def test_a_file_that_is_not_utf_8_or_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"caf\xe9\n")
    tool = EditFile(tmp_path)

    with pytest.raises(InvalidCall, match="not UTF-8"):
        await call_tool(tool, path="a", old_text="caf", new_text="x")
    with pytest.raises(InvalidCall, match="does not exist; use write_file to create it"):
        await call_tool(tool, path="b", old_text="caf", new_text="x")


@given(
    text=st.text(alphabet="ab\n", max_size=30),
    old=st.text(alphabet="ab\n", min_size=1, max_size=4),
    new=st.text(max_size=4),
)
def test_an_edit_changes_exactly_the_one_occurrence(text: str, old: str, new: str) -> None:
    edit = Edit(old_text=old, new_text=new)

    if text.count(old) == 1 and old != new:
        start, end = text.split(old)
        assert apply_edits(text, [edit], "f") == start + new + end
    else:
        with pytest.raises(InvalidCall):
            apply_edits(text, [edit], "f")


async def test_an_edit_killed_before_it_acted_is_repeated_and_one_killed_after_it_gives_the_same_answer(
    tmp_path: Path,
) -> None:
    (tmp_path / "a").write_text("one\n")
    tool = EditFile(tmp_path)
    prepared = await tool.prepare(make_tool_use(tool, path="a", old_text="one", new_text="two"))
    action = make_started_action(tool, prepared)

    assert await tool.recover(action) is None
    said = await prepared.act()
    assert await tool.recover(action) == said


async def test_an_edit_of_a_file_that_changed_after_a_crash_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    tool = EditFile(tmp_path)
    prepared = await tool.prepare(make_tool_use(tool, path="a", old_text="one", new_text="two"))
    (tmp_path / "a").write_text("three\n")

    answer = await tool.recover(make_started_action(tool, prepared))

    assert answer is not None
    assert answer.is_error
    assert "something else has changed the file since" in answer.text
    assert (tmp_path / "a").read_text() == "three\n"


async def test_a_link_that_replaced_the_file_after_a_crash_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    tool = EditFile(tmp_path)
    prepared = await tool.prepare(make_tool_use(tool, path="a", old_text="one", new_text="two"))
    (tmp_path / "a").unlink()
    (tmp_path / "a").symlink_to("/etc/passwd")

    answer = await tool.recover(make_started_action(tool, prepared))

    assert answer is not None
    assert answer.is_error


async def test_a_file_of_the_same_name_elsewhere_is_suggested_instead_of_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "price.py").write_text("a")

    with pytest.raises(InvalidCall, match=r"^src/price.py does not exist; did you mean price.py\?$"):
        await call_tool(EditFile(tmp_path), path="src/price.py", old="a", new="b")

    assert not (tmp_path / "src").exists()
