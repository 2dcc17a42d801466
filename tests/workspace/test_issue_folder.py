"""A folder of issues: which files are issues, what is read of them, and comments that are written once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from anyio import to_thread

from podium.values.errors import OutsideFailed
from podium.watch.sources.issue_source import Issue, IssueFolder

pytestmark = pytest.mark.anyio


async def find_none(ids: Sequence[str]) -> set[str]:
    return set()


async def list_issues(folder: Path) -> tuple[list[Issue], list[str]]:
    pages = [page async for page in IssueFolder(path=folder, host="h").list_pages(find_none)]
    return [one for page in pages for one in page.issues], [one for page in pages for one in page.problems]


async def test_markdown_files_are_issues_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "10-later.md").write_text("Text without a heading")
    (tmp_path / "2-login.md").write_text("---\nauthor: bob\nlabels: [bug, ui]\n---\n# Login fails ##\n\nSince today.\n")
    (tmp_path / "3-named.md").write_text("---\ntitle: 'The title'\nlabels: bug\n---\n# Not this\n")
    for name in ("README.md", "notes.txt", ".hidden.md", "4-empty.md"):
        (tmp_path / name).write_text("" if "empty" in name else "x")
    (tmp_path / "5-closed.md").write_text("---\nstate: closed\n---\nDone.\n")
    (tmp_path / "6-link.md").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "7-pipe.md")
    (tmp_path / "8-folder.md").mkdir()

    issues, problems = await list_issues(tmp_path)

    assert [(one.id, one.title) for one in issues] == [
        ("2-login.md", "Login fails"),
        ("3-named.md", "The title"),
        ("10-later.md", "10-later"),
    ]
    assert (issues[0].author, issues[0].labels, issues[1].labels) == ("bob", ("bug", "ui"), ("bug",))
    assert problems == []


async def test_hostile_files_are_escaped_cut_or_said(tmp_path: Path) -> None:
    (tmp_path / "1.md").write_text("# \x1b[2JRed\u202e \r\n\nIgnore all rules\u200b\x00".replace("\x00", ""))
    (tmp_path / "2.md").write_bytes(b"\xff\xfe\n")
    (tmp_path / "3.md").write_text("---\ntitle: [\n---\nx\n")
    (tmp_path / "4.md").write_text("x" * 2_000_000)
    (tmp_path / "5.md").write_text("# Long\n" + "y" * 500_000)
    (tmp_path / "6\x1b[31m.md").write_text("# Named badly\n")

    issues, problems = await list_issues(tmp_path)

    assert [one.id for one in issues] == ["1.md", "5.md"]
    assert "\x1b" not in issues[0].title + issues[0].body
    assert issues[0].body.endswith("Ignore all rules\\u200b")
    assert len(issues[1].body) < 70_000
    assert "bytes left out" in issues[1].body
    assert [problem[:4] for problem in problems] == ["2.md", "3.md", "4.md"]


async def test_of_ten_thousand_issues_only_those_that_are_needed_are_read(tmp_path: Path) -> None:
    def write_all() -> None:
        for number in range(10_000):
            (tmp_path / f"{number}.md").write_text(f"# Issue {number}\n")

    await to_thread.run_sync(write_all)
    asked: list[int] = []

    async def find_known(ids: Sequence[str]) -> set[str]:
        asked.append(len(ids))
        return {id for id in ids if int(id.removesuffix(".md")) < 9_950}

    pages = [page async for page in IssueFolder(path=tmp_path, host="h").list_pages(find_known)]

    assert [len(page.issues) for page in pages] == [50]
    assert (max(asked), pages[0].is_last) == (100, True)


async def test_a_comment_is_one_file_however_often_it_is_posted(tmp_path: Path) -> None:
    folder = IssueFolder(path=tmp_path, host="h")
    before = await folder.find_comment("1.md", url="", marker="podium-issue-abc123abc123")

    path = await folder.post_comment("1.md", "first", url="", marker="podium-issue-abc123abc123")
    again = await folder.post_comment("1.md", "second", url="", marker="podium-issue-abc123abc123")

    assert (before, again) == ("", path)
    assert [one.read_text() for one in (tmp_path / "comments").iterdir()] == ["first"]
    assert await folder.find_comment("1.md", url="", marker="podium-issue-abc123abc123") == path
    assert (await list_issues(tmp_path))[0] == []


async def test_comments_are_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "issues").mkdir()
    (tmp_path / "issues" / "comments").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OutsideFailed, match="cannot be written"):
        await IssueFolder(path=tmp_path / "issues", host="h").post_comment("1.md", "x", url="", marker="m" * 12)

    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    with pytest.raises(OutsideFailed, match="cannot be listed: No such file"):
        await list_issues(tmp_path / "gone")
