from __future__ import annotations

from pathlib import Path

from .conftest import Desk


def test_the_demo_shows_a_run_that_survives_its_process(desk: Desk, tmp_path: Path) -> None:
    said = desk.run_podium("demo", TMPDIR=str(tmp_path), PODIUM_FAULT="1", PODIUM_STORE="/nowhere", OPENAI_API_KEY="k")

    assert (said.returncode, said.stderr) == (0, "")
    assert "exit code 137" in said.stdout
    assert said.stdout.count("✓ ") == 5 + 5  # the agents in the tree, and the results of the checks
    assert "NOT TRUE" not in said.stdout
    assert not desk.store.exists()
    assert list(tmp_path.iterdir()) == []


def test_the_demo_can_be_kept_and_looked_at(desk: Desk, tmp_path: Path) -> None:
    said = desk.run_podium("demo", "--keep", TMPDIR=str(tmp_path))

    [kept] = tmp_path.iterdir()
    run = said.stdout.split("podium show ")[1].split()[0]
    shown = desk.run_podium("show", run, PODIUM_HOME=str(kept / "home"))
    assert f"cd {kept}/shop && export PODIUM_HOME={kept}/home" in said.stdout
    assert "✓ reviewer" in shown.stdout
    assert len(list((kept / "shop" / ".podium" / "agents").iterdir())) == 7
