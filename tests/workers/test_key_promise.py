"""A promise: keys for a run that somebody is still to bring."""

from __future__ import annotations

from pathlib import Path

import pytest

from podium.values.errors import OutsideFailed
from podium.workers.provider_keys import KeyReceiver, announce_keys, is_delivery_pending, send_keys


def test_keys_are_promised_until_whoever_promised_them_lets_go_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    store = tmp_path / "s.db"

    with announce_keys(store, "r"):
        during = is_delivery_pending(store, "r"), is_delivery_pending(store, "another")
    after = is_delivery_pending(store, "r")

    assert during == (True, False)
    assert after is False
    assert list(tmp_path.rglob("keys-*")) == []


def test_keys_for_a_run_that_could_not_be_hired_are_promised_no_longer(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not hired"), announce_keys(tmp_path / "s.db", "r"):
        raise ValueError("not hired")

    assert list(tmp_path.rglob("keys-*")) == []


async def test_promised_keys_that_do_not_come_are_not_waited_for_without_end(tmp_path: Path) -> None:
    keyring = KeyReceiver(tmp_path / "s.db")
    keyring.open()

    with (
        announce_keys(tmp_path / "s.db", "r"),
        pytest.raises(OutsideFailed, match=r"have not come within 0.05 s; delegate"),
    ):
        await keyring.wait_for_keys("r", within=0.05)

    await keyring.wait_for_keys("r")
    keyring.close()


def test_whoever_brings_keys_hears_whether_somebody_has_them(tmp_path: Path) -> None:
    keyring = KeyReceiver(tmp_path / "s.db")

    before = send_keys(tmp_path / "s.db", "r", {"KEY": "k"})
    keyring.open()
    during = send_keys(tmp_path / "s.db", "r", {"KEY": "k"})
    keyring.close()
    after = send_keys(tmp_path / "s.db", "r", {"KEY": "other"})

    assert (before, during, after) == (False, True, False)
