"""Reading untrusted files: anything but a short regular text file inside the root is refused in one sentence."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from podium.system.whole_file import MAX_FILE_BYTES, UnreadableFile, read_file_bytes, read_text_file


def test_text_is_read_without_byte_order_mark_and_with_plain_line_endings(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes("\ufeffmodel: a\r\nrole: é\rend".encode())

    assert read_text_file(path, root=tmp_path) == "model: a\nrole: é\nend"


def test_a_link_inside_the_root_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real.yaml").write_text("model: a\n")
    (tmp_path / "a.yaml").symlink_to("real.yaml")

    assert read_file_bytes(tmp_path / "a.yaml", root=tmp_path) == b"model: a\n"


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(path))  # a full path may be too long for a socket


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: None, "does not exist; create it or correct its path"),
        (Path.mkdir, "is a folder; use a regular file"),
        (os.mkfifo, "is a pipe; use a regular file"),
        (make_socket, "is a socket; use a regular file"),
        (lambda path: path.symlink_to("/dev/null"), "is a device; use a regular file"),
        (lambda path: path.symlink_to("absent"), "is a broken symbolic link; use a regular file"),
        (lambda path: path.symlink_to(path.name), "is part of a symbolic link loop; use a regular file"),
        (lambda path: path.write_bytes(b"#" * (MAX_FILE_BYTES + 1)), "is larger than the limit of 1 MiB; shorten it"),
        (
            lambda path: path.write_bytes(b"a\n\0"),
            "has a NUL byte on line 2, so it seems to be a binary file; use plain text",
        ),
        (lambda path: path.write_bytes(b"a\n\xe9"), "is not UTF-8: byte 0xe9 on line 2; save it as UTF-8"),
    ],
)
def test_what_cannot_be_read_says_why_and_what_would_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "a.yaml")

    with pytest.raises(UnreadableFile) as refused:
        read_text_file(tmp_path / "a.yaml")

    assert str(refused.value) == sentence


def test_a_file_outside_the_root_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    (tmp_path / "secret").write_text("s3cret")
    (tmp_path / "repo" / "a.yaml").symlink_to("../secret")

    with pytest.raises(UnreadableFile, match="is outside the repository and is not read; copy it into the repository"):
        read_text_file(tmp_path / "repo" / "a.yaml", root=tmp_path / "repo")
