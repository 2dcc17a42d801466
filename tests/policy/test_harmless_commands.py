"""Harmless commands do not need more permissions than recorded."""

from __future__ import annotations

from .harmless_commands import RECORDED, read_commands, record


def test_the_policy_asks_about_the_recorded_ones_of_two_thousand_harmless_commands() -> None:
    commands = read_commands()

    assert len(commands) == len(set(commands)) == 2_000
    assert record() == RECORDED.read_text(), "after an intended change: python -m tests.policy.harmless_commands"
