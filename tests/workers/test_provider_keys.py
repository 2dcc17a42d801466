"""The keyring: keys that come to a commander with an errand."""

from __future__ import annotations

from pathlib import Path

from podium.workers.provider_keys import KeyReceiver, send_keys

KEYS = {"OPENAI_API_KEY": "sk-of-whoever-delegates"}


def test_keys_that_come_as_a_commander_ends_are_there_when_it_goes_on_after_all(tmp_path: Path) -> None:
    keyring = KeyReceiver(tmp_path / "s.db")
    keyring.open()
    send_keys(tmp_path / "s.db", "r", KEYS)
    keyring.close()

    keyring.open()
    found = keyring.get_keys("r")
    keyring.close()

    assert found == KEYS


def test_where_no_commander_is_there_keys_go_nowhere(tmp_path: Path) -> None:
    send_keys(tmp_path / "s.db", "r", KEYS)

    keyring = KeyReceiver(tmp_path / "s.db")
    keyring.open()
    found = keyring.get_keys("r")
    keyring.close()

    assert found == {}
