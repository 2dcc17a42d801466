"""The keyring: keys that come to a commander with an errand."""

from __future__ import annotations

from pathlib import Path

from podium.workers.provider_keys import Keyring, hand_over

KEYS = {"OPENAI_API_KEY": "sk-of-whoever-delegates"}


def test_keys_that_come_as_a_commander_ends_are_there_when_it_goes_on_after_all(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path / "s.db")
    keyring.open()
    hand_over(tmp_path / "s.db", "r", KEYS)
    keyring.close()

    keyring.open()
    found = keyring.of("r")
    keyring.close()

    assert found == KEYS


def test_where_no_commander_is_there_keys_go_nowhere(tmp_path: Path) -> None:
    hand_over(tmp_path / "s.db", "r", KEYS)

    keyring = Keyring(tmp_path / "s.db")
    keyring.open()
    found = keyring.of("r")
    keyring.close()

    assert found == {}
