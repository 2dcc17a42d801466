"""Several processes change files in the person's home directory at once: no change is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from podium import PodiumError
from podium.files.always_allow_rules import AllowedRule, load_allowed_rules, save_allowed_rule
from podium.files.confirmed_model_servers import ConfirmedServer, load_confirmed_servers, save_confirmed_server
from podium.files.trust import Trust

WRITERS = 24


def write_at_once(write: Callable[[int], object]) -> None:
    """Call `write` with each number, all at the same moment."""
    together = threading.Barrier(WRITERS)

    def write_one(number: int) -> None:
        together.wait()
        write(number)

    writers = [threading.Thread(target=write_one, args=(number,)) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()


def test_rules_that_are_allowed_for_good_at_once_are_all_kept(tmp_path: Path) -> None:
    write_at_once(lambda number: save_allowed_rule(tmp_path, AllowedRule(rule=f"Bash(make {number})", at=0.0)))

    assert {one.rule for one in load_allowed_rules(tmp_path)} == {f"Bash(make {number})" for number in range(WRITERS)}


def test_servers_that_are_confirmed_at_once_are_all_kept(tmp_path: Path) -> None:
    def confirm(number: int) -> None:
        server = ConfirmedServer(url=f"http://127.0.0.1:{9000 + number}/v1", provider="ollama", model="m")
        save_confirmed_server(tmp_path, server)

    write_at_once(confirm)

    assert len(load_confirmed_servers(tmp_path)) == WRITERS


def test_things_that_are_trusted_at_once_are_all_kept(tmp_path: Path) -> None:
    write_at_once(lambda number: Trust.load(tmp_path).trust("settings", f"key {number}", "digest"))

    trust = Trust.load(tmp_path)
    assert all(trust.is_trusted("settings", f"key {number}", "digest") for number in range(WRITERS))


def test_a_home_that_cannot_be_written_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")

    with pytest.raises(PodiumError, match=r"allowed\.json cannot be written"):
        save_allowed_rule(tmp_path / "file", AllowedRule(rule="Bash(ls)", at=0.0))
