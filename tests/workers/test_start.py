"""Starting a commander: the folder that it is started in does not affect it."""

from __future__ import annotations

from pathlib import Path

import pytest

from podium import Settings
from podium.values.errors import Mistake
from podium.workers.delegation import start_commander

from .worker_lab import WorkerLab


async def test_no_module_in_the_current_folder_is_imported_instead_of_ours(
    lab: WorkerLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = tmp_path / "ran"
    folder = tmp_path / "hostile"
    folder.mkdir()
    for name in ("anyio.py", "msgspec.py"):
        (folder / name).write_text(f"open({str(canary)!r}, 'w').close()\n")
    run = await lab.delegate("feat/one", "one")
    monkeypatch.chdir(folder)

    start_commander(lab.settings(), lab.environ)
    await lab.wait_ended(run)

    assert not canary.exists()


def test_a_home_in_which_no_log_can_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")

    with pytest.raises(Mistake, match="cannot start a commander"):
        start_commander(Settings.load({}, home=tmp_path), {})
