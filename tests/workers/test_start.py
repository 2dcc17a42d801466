"""How a commander is started: nothing of the folder that it is started in becomes part of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from podium import Settings
from podium.values.errors import Mistake
from podium.workers.delegate import start_commander

from .worker_lab import Yard


async def test_no_module_of_the_repository_is_taken_for_one_of_ours(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = tmp_path / "ran"
    folder = tmp_path / "hostile"
    folder.mkdir()
    for name in ("anyio.py", "msgspec.py"):
        (folder / name).write_text(f"open({str(canary)!r}, 'w').close()\n")
    run = await yard.hire("feat/one", "one")
    monkeypatch.chdir(folder)

    start_commander(yard.settings(), yard.environ)
    await yard.ended(run)

    assert not canary.exists()


def test_a_home_in_which_no_log_can_be_kept_is_said(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")

    with pytest.raises(Mistake, match="no commander can be started"):
        start_commander(Settings.load({}, home=tmp_path), {})
