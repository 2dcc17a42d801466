"""A diff from git, with whatever files it has, becomes files, hunks and lines."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from podium.testing import make_repository
from podium.views.diff_hunks import LONGEST_LINE, ParsedDiff, parse_diff

SETTINGS = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "core.quotePath=false", "-c", "core.autocrlf=false")


class Repo:
    """A git repository whose changes are compared with its only commit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        make_repository(folder)

    def git(self, *words: str) -> str:
        return os.fsdecode(subprocess.check_output(["git", *SETTINGS, *words], cwd=self.folder))

    def write(self, name: str | bytes, content: str | bytes) -> None:
        path = os.path.join(os.fsencode(self.folder), os.fsencode(name))  # noqa: PTH118 - the name can be bytes
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        with open(path, "wb") as file:  # noqa: PTH123
            file.write(content.encode() if isinstance(content, str) else content)

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", "Start", "--allow-empty")

    def parse(self, *options: str, most_lines: int = 20_000) -> list[dict[str, Any]]:
        """Return the files of the diff. It must be possible to send them as JSON."""
        self.git("add", "-A")
        found = parse_diff(self.git("diff", "--cached", "--patch", *options, "HEAD"), most_lines=most_lines)
        return list(msgspec.json.decode(msgspec.json.encode(found))["files"])


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path)


def show_lines(file: dict[str, Any]) -> list[tuple[str, int | None, int | None, str]]:
    return [
        (row["mark"], row.get("old"), row.get("new"), row["text"]) for hunk in file["hunks"] for row in hunk["lines"]
    ]


def test_each_line_has_its_mark_and_its_numbers_in_the_old_and_the_new_file(repo: Repo) -> None:
    repo.write("a.py", "one\ntwo\nthree\n\n")
    repo.commit()
    repo.write("a.py", "one\n2\n2b\nthree\n\n")

    [file] = repo.parse()

    assert (file["path"], file["status"], file["added"], file["removed"]) == ("a.py", "changed", 2, 1)
    assert show_lines(file) == [
        (" ", 1, 1, "one"),
        ("-", 2, None, "two"),
        ("+", None, 2, "2"),
        ("+", None, 3, "2b"),
        (" ", 3, 4, "three"),
        (" ", 4, 5, ""),
    ]


def test_a_line_that_looks_like_a_header_is_a_line(repo: Repo) -> None:
    repo.write("a.sql", "-- a/x\ndiff --git a/x b/x\n")
    repo.commit()
    repo.write("a.sql", "++ b/y\n@@ -1 +1 @@\n")

    [file] = repo.parse()

    assert [(mark, text) for mark, _, _, text in show_lines(file)] == [
        ("-", "-- a/x"),
        ("-", "diff --git a/x b/x"),
        ("+", "++ b/y"),
        ("+", "@@ -1 +1 @@"),
    ]


def test_a_hunk_has_the_heading_that_git_found(repo: Repo) -> None:
    lines = ["def export():", *(f"    line({number})" for number in range(12))]
    repo.write("a.py", "\n".join(lines) + "\n")
    repo.commit()
    repo.write("a.py", "\n".join([*lines[:-1], "    last()"]) + "\n")

    [file] = repo.parse()

    assert [(hunk["old"], hunk["new"], hunk["heading"]) for hunk in file["hunks"]] == [(10, 10, "def export():")]


def test_files_can_be_added_deleted_renamed_and_changed_in_mode_only(repo: Repo) -> None:
    repo.write("old.txt", "".join(f"{number}\n" for number in range(20)))
    repo.write("gone.txt", "x\n")
    repo.write("run.sh", "true\n")
    repo.commit()
    (repo.folder / "old.txt").rename(repo.folder / "new name.txt")
    (repo.folder / "gone.txt").unlink()
    (repo.folder / "run.sh").chmod(0o755)
    repo.write("fresh.txt", "")

    files = {file["path"]: file for file in repo.parse()}

    assert {path: file["status"] for path, file in files.items()} == {
        "fresh.txt": "added",
        "gone.txt": "deleted",
        "new name.txt": "renamed",
        "run.sh": "changed",
    }
    assert files["new name.txt"]["was"] == "old.txt"
    assert (files["run.sh"]["old_mode"], files["run.sh"]["mode"]) == ("100644", "100755")
    assert files["gone.txt"]["removed"] == 1
    assert files["fresh.txt"]["hunks"] == []


def test_a_renamed_file_that_was_also_changed_has_both_names_and_its_lines(repo: Repo) -> None:
    repo.write("a b/old.txt", "".join(f"{number}\n" for number in range(20)))
    repo.commit()
    (repo.folder / "a b" / "old.txt").rename(repo.folder / "a b" / "new.txt")
    repo.write("a b/new.txt", "".join(f"{number}\n" for number in range(19)))

    [file] = repo.parse()

    assert (file["was"], file["path"], file["removed"]) == ("a b/old.txt", "a b/new.txt", 1)


def test_a_copied_file_has_both_names(repo: Repo) -> None:
    repo.write("old.txt", "".join(f"{number}\n" for number in range(20)))
    repo.commit()
    repo.write("copy.txt", "".join(f"{number}\n" for number in range(20)))

    [file] = repo.parse("--find-copies-harder")

    assert (file["status"], file["was"], file["path"]) == ("copied", "old.txt", "copy.txt")


def test_a_binary_file_is_marked_and_has_no_lines(repo: Repo) -> None:
    repo.write("logo b/logo.png", b"\x89PNG\0\1")
    repo.commit()
    repo.write("logo b/logo.png", b"\x89PNG\0\2")
    repo.write("new.bin", b"\0\1")

    logo, new = repo.parse()

    assert (logo["path"], logo["status"], logo["binary"], logo["hunks"]) == ("logo b/logo.png", "changed", True, [])
    assert (new["path"], new["status"], new["binary"]) == ("new.bin", "added", True)


def test_a_change_of_line_ends_keeps_the_carriage_returns(repo: Repo) -> None:
    repo.write("a.txt", "one\ntwo\n")
    repo.commit()
    repo.write("a.txt", "one\r\ntwo\r\n")

    [file] = repo.parse()

    assert [(mark, text) for mark, _, _, text in show_lines(file)] == [
        ("-", "one"),
        ("-", "two"),
        ("+", "one\r"),
        ("+", "two\r"),
    ]


def test_a_missing_line_break_at_the_end_of_a_file_is_a_row_without_a_number(repo: Repo) -> None:
    repo.write("a.txt", "one\ntwo")
    repo.commit()
    repo.write("a.txt", "one\ntwo\n")

    [file] = repo.parse()

    assert show_lines(file) == [
        (" ", 1, 1, "one"),
        ("-", 2, None, "two"),
        ("\\", None, None, " No newline at end of file"),
        ("+", None, 2, "two"),
    ]
    assert (file["added"], file["removed"]) == (1, 1)


@pytest.mark.parametrize(
    "name",
    [
        'quote".txt',
        "back\\slash.txt",
        "tab\tand\nbreak.txt",
        "ü é.txt",
        'שלום ".txt',
        "\x01\x7f\x1b[31m.txt",
        "x b/y b/z.txt",
        "trailing space ",
    ],
)
@pytest.mark.parametrize("change", ["lines", "mode", "binary", "rename"])
def test_a_file_keeps_its_name_whatever_characters_it_has(repo: Repo, name: str, change: str) -> None:
    changes: dict[str, Callable[[], object]] = {
        "lines": lambda: repo.write(name, "other\n"),
        "mode": lambda: (repo.folder / name).chmod(0o755),
        "binary": lambda: repo.write(name, b"\0"),
        "rename": lambda: (repo.folder / name).rename(repo.folder / "plain.txt"),
    }
    repo.write(name, "one\n")
    repo.commit()
    changes[change]()

    [file] = repo.parse()

    assert name == (file["was"] if change == "rename" else file["path"])


def test_right_to_left_text_and_control_characters_stay_as_they_are(repo: Repo) -> None:
    text = "שלום \u202eexe.txt\u202c \u2028 \x0b \x85 \x1b[2J"
    repo.write("a.txt", "one\n")
    repo.commit()
    repo.write("a.txt", f"{text}\n")

    [file] = repo.parse()

    assert show_lines(file)[1] == ("+", None, 1, text)


def test_bytes_that_are_not_utf_8_are_replaced_in_lines_and_names(repo: Repo) -> None:
    repo.write("a.txt", "one\n")
    repo.commit()
    repo.write("a.txt", b"caf\xe9\n")
    repo.write(b"b\xff.txt", "x\n")

    files = repo.parse()

    assert [file["path"] for file in files] == ["a.txt", "b�.txt"]
    assert show_lines(files[0])[1][3] == "caf�"


def test_lines_after_the_most_are_counted_but_left_out(repo: Repo) -> None:
    repo.write("a.txt", "")
    repo.write("b.txt", "")
    repo.commit()
    repo.write("a.txt", "x\n" * 6)
    repo.write("b.txt", "x\n" * 3)

    first, second = repo.parse(most_lines=5)

    assert (first["added"], len(show_lines(first)), first["omitted"]) == (6, 5, 1)
    assert (second["added"], show_lines(second), second["omitted"]) == (3, [], 3)


def test_a_long_line_is_cut_and_says_how_much_is_missing(repo: Repo) -> None:
    repo.write("a.js", "")
    repo.commit()
    repo.write("a.js", "x" * (LONGEST_LINE + 7) + "\n")

    [file] = repo.parse()

    [row] = file["hunks"][0]["lines"]
    assert (len(row["text"]), row["cut"]) == (LONGEST_LINE, 7)


def test_a_repository_that_leaves_out_marks_of_empty_lines_is_read_alike(repo: Repo) -> None:
    repo.git("config", "diff.suppressBlankEmpty", "true")
    repo.write("a.txt", "one\n\nthree\n\n")
    repo.commit()
    repo.write("a.txt", "1\n\nthree\n\n")

    [file] = repo.parse()

    assert show_lines(file)[-3:] == [(" ", 2, 2, ""), (" ", 3, 3, "three"), (" ", 4, 4, "")]


def test_a_diff_of_5000_lines_is_parsed_in_well_under_a_second(repo: Repo) -> None:
    repo.write("a.py", "")
    repo.commit()
    repo.write("a.py", "".join(f"value_{number} = {number}\n" for number in range(5000)))
    text = repo.git("add", "-A") + repo.git("diff", "--cached", "HEAD")

    started = time.process_time()
    [file] = parse_diff(text).files

    assert time.process_time() - started < 0.5
    assert (file.added, len(file.hunks[0].lines)) == (5000, 5000)


def test_only_files_that_keep_their_name_and_their_kind_have_hunks_to_choose_from(repo: Repo) -> None:
    repo.write("a.txt", "one\n")
    repo.write("run.sh", "true\n")
    (repo.folder / "link").symlink_to("a.txt")
    repo.commit()
    repo.write("a.txt", "two\n")
    repo.write("new.txt", "x\n")
    repo.write("run.sh", "false\n")
    (repo.folder / "run.sh").chmod(0o755)
    (repo.folder / "link").unlink()
    (repo.folder / "link").symlink_to("b.txt")

    found = {file["path"]: file["is_whole"] for file in repo.parse()}

    assert found == {"a.txt": False, "link": True, "new.txt": True, "run.sh": True}


def test_an_empty_diff_has_no_files() -> None:
    assert parse_diff("") == ParsedDiff(files=[], omitted=0)
