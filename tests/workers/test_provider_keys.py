"""Provider keys: delivered to a commander with a worker's task, and held only in memory."""

from __future__ import annotations

from pathlib import Path

from podium.workers.provider_keys import KeyReceiver, send_keys

KEYS = {"OPENAI_API_KEY": "sk-of-whoever-delegates"}


def test_keys_that_arrive_as_a_commander_ends_are_available_when_it_continues(tmp_path: Path) -> None:
    key_receiver = KeyReceiver(tmp_path / "s.db")
    key_receiver.open()
    send_keys(tmp_path / "s.db", "r", KEYS)
    key_receiver.close()

    key_receiver.open()
    found = key_receiver.get_keys("r")
    key_receiver.close()

    assert found == KEYS


def test_without_a_commander_keys_are_not_delivered(tmp_path: Path) -> None:
    send_keys(tmp_path / "s.db", "r", KEYS)

    key_receiver = KeyReceiver(tmp_path / "s.db")
    key_receiver.open()
    found = key_receiver.get_keys("r")
    key_receiver.close()

    assert found == {}
