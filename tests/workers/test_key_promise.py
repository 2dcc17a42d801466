"""Provider keys that were announced for a run but have not been delivered yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from podium.values.errors import OutsideFailed
from podium.workers.provider_keys import KeyReceiver, announce_keys, is_delivery_pending, send_keys


def test_a_key_delivery_is_pending_until_it_is_finished_and_leaves_no_file(tmp_path: Path) -> None:
    store = tmp_path / "s.db"

    with announce_keys(store, "r"):
        during = is_delivery_pending(store, "r"), is_delivery_pending(store, "another")
    after = is_delivery_pending(store, "r")

    assert during == (True, False)
    assert after is False
    assert list(tmp_path.rglob("keys-*")) == []


def test_a_key_delivery_for_a_run_that_could_not_be_delegated_is_no_longer_pending(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not hired"), announce_keys(tmp_path / "s.db", "r"):
        raise ValueError("not hired")

    assert list(tmp_path.rglob("keys-*")) == []


async def test_waiting_for_announced_keys_that_do_not_arrive_times_out(tmp_path: Path) -> None:
    key_receiver = KeyReceiver(tmp_path / "s.db")
    key_receiver.open()

    with (
        announce_keys(tmp_path / "s.db", "r"),
        pytest.raises(OutsideFailed, match=r"did not arrive within 0.05 s; delegate"),
    ):
        await key_receiver.wait_for_keys("r", within=0.05)

    await key_receiver.wait_for_keys("r")
    key_receiver.close()


def test_sending_keys_returns_whether_a_commander_received_them(tmp_path: Path) -> None:
    key_receiver = KeyReceiver(tmp_path / "s.db")

    before = send_keys(tmp_path / "s.db", "r", {"KEY": "k"})
    key_receiver.open()
    during = send_keys(tmp_path / "s.db", "r", {"KEY": "k"})
    key_receiver.close()
    after = send_keys(tmp_path / "s.db", "r", {"KEY": "other"})

    assert (before, during, after) == (False, True, False)
