"""Removing folders that an agent made, even if they are very deep, unreadable or full of links."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from podium.system.owned_files import remove_folder
from podium.values.errors import OutsideFailed

NOBODY = 65534


def make_deep_folders(folder: Path, levels: int) -> None:
    """Make nested folders step by step, because their full path would be too long."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d" * 100, dir_fd=at)
        below = os.open("d" * 100, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("bottom.txt", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)


@pytest.mark.parametrize("levels", [0, 1, 3000])
def test_a_folder_goes_however_deep_it_is(tmp_path: Path, levels: int) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    make_deep_folders(folder, levels)

    remove_folder(folder)

    assert list(tmp_path.iterdir()) == []


def test_the_targets_of_links_stay(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "canary").write_text("here")
    folder = tmp_path / "made"
    (folder / "a").mkdir(parents=True)
    (folder / "out").symlink_to(kept)
    (folder / "a" / "out").symlink_to(kept / "canary")
    (folder / "a" / "self").symlink_to(folder)

    remove_folder(folder)

    assert not folder.exists()
    assert (kept / "canary").read_text() == "here"


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "made").symlink_to(tmp_path / "kept")

    with pytest.raises(OutsideFailed, match="is a symbolic link and was not removed"):
        remove_folder(tmp_path / "made")

    assert (tmp_path / "kept").exists()


def test_folders_that_their_owner_made_inaccessible_are_removed_too() -> None:
    with tempfile.TemporaryDirectory(prefix="closed-") as name:
        Path(name).chmod(0o777)
        folder = Path(name) / "made"

        child = os.fork()
        if child == 0:  # file modes do not stop root, so an ordinary user has to try
            if os.geteuid() == 0:
                os.setuid(NOBODY)
            try:
                close_and_remove(folder)
            finally:
                os._exit(os.path.lexists(folder))

        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def close_and_remove(folder: Path) -> None:
    for name in ("unreadable/below", "unwritable/below", "shut/below"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").touch()
    for name, mode in (("unreadable", 0o300), ("unwritable", 0o500), ("shut/below", 0), ("shut", 0)):
        (folder / name).chmod(mode)
    remove_folder(folder)
