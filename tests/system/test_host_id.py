"""The id of this machine."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from podium.system.identity import HOST_FILE, read_host_id
from podium.values.errors import Mistake


def test_a_home_keeps_its_id_and_no_two_homes_have_the_same(tmp_path: Path) -> None:
    first = read_host_id(tmp_path / "one")

    assert read_host_id(tmp_path / "one") == first != read_host_id(tmp_path / "two")
    assert (tmp_path / "one" / HOST_FILE).read_text() == f"{first}\n"


def test_processes_that_ask_at_once_get_the_same_id(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(read_host_id, [tmp_path] * 8))) == 1


def test_an_invalid_file_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / HOST_FILE).write_text("two words\n")

    with pytest.raises(Mistake, match="does not contain a valid machine id; delete it"):
        read_host_id(tmp_path)
