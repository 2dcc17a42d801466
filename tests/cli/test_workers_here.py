"""Workers without a checkout: those that only read, and runs that were detached."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ..processes.yard import Yard, hand, write
from .crew import opened, say, told


@pytest.fixture
async def yard(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Yard]:
    async with opened() as yard:
        monkeypatch.chdir(yard.repo.path)
        yield yard


async def test_a_detached_run_is_said_to_work_in_the_repository_itself(yard: Yard) -> None:
    yard.agent(hand(write("new.txt"), "written"))
    yard.set("permissions: {allow: [Write]}\n")

    run = (await say(yard, "run", "hand", "go", "--detach")).stdout.strip()
    await say(yard, "workers", "wait", run)

    assert (yard.repo.path / "new.txt").exists()
    assert (await say(yard, "workers")).stdout.splitlines()[1].split()[:3] == [run, "(here)", "complete"]
    status = (await say(yard, "workers", "status", run)).stdout
    assert f"works in: {yard.root}, the repository itself\n" in status
    assert "reads only" not in status
    assert (await told(yard, "workers", "status", run))["reader"] is False
    assert "works in the repository itself" in (await say(yard, "workers", "diff", run)).stderr
