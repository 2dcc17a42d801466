from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from podium.files.trust import Trust
from podium.values.errors import Mistake


def test_only_what_was_trusted_is_trusted(tmp_path: Path) -> None:
    trust = Trust.load(tmp_path / "home")

    trust.trust("server", "time", "abc")

    assert trust.is_trusted("server", "time", "abc")
    assert not trust.is_trusted("server", "time", "abd")
    assert not trust.is_trusted("tool", "time", "abc")
    assert not trust.is_trusted("server", "tim", "abc")


def test_trust_is_kept_in_a_file_that_only_the_person_reads(tmp_path: Path) -> None:
    home = tmp_path / "home"

    Trust.load(home).trust("tool", "time x", "abc", content="as seen")

    assert Trust.load(home).is_trusted("tool", "time x", "abc")
    assert stat.S_IMODE((home / "trust.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert sorted(path.name for path in home.iterdir()) == [".trust.lock", "trust.json"]


def test_trust_given_elsewhere_holds_at_once(tmp_path: Path) -> None:
    trust = Trust.load(tmp_path)

    Trust.load(tmp_path).trust("server", "time", "abc")

    assert trust.is_trusted("server", "time", "abc")


def test_new_trust_in_a_name_replaces_the_old(tmp_path: Path) -> None:
    trust = Trust.load(tmp_path)
    trust.trust("server", "time", "old")

    trust.trust("server", "time", "new")

    assert not trust.is_trusted("server", "time", "old")


def test_trust_given_in_many_places_at_once_is_not_lost(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: Trust.load(tmp_path).trust("tool", f"tool {n}", "abc"), range(40)))

    assert all(Trust.load(tmp_path).is_trusted("tool", f"tool {n}", "abc") for n in range(40))


@pytest.mark.parametrize("content", [b"{", b'{"version": 2}', b'{"trusted": {"server": {"a": 1}}}', b"\xff"])
def test_a_file_that_cannot_be_read_trusts_nothing_and_says_so(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "trust.json").write_bytes(content)

    with pytest.raises(Mistake, match=r"trust\.json cannot be read"):
        Trust.load(tmp_path)
