"""The worktree ledger: no worktree is created twice or forgotten, and one process at a time uses it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from podium.store.worktree_ledger import Ledger, WorktreeRow
from podium.values.store_address import StoreAddress, find_local_folder


@pytest.fixture
def ledger(address: StoreAddress) -> Ledger:
    return Ledger(address)


@pytest.fixture
def file_ledger(tmp_path: Path) -> Ledger:
    """A ledger in a SQLite file that does not exist yet."""
    return Ledger(tmp_path / "home" / "podium.db")


async def record_worktree(
    ledger: Ledger, branch: str, *, path: str = "", repository: str = "/r/.git"
) -> WorktreeRow | None:
    return await ledger.record_new(
        Path(path or f"/r-worker-{branch}"),
        repository=Path(repository),
        branch=branch,
        base="b" * 40,
        run="r1",
        is_new_branch=True,
    )


async def test_a_worktree_is_noted_from_its_beginning_to_its_end(ledger: Ledger) -> None:
    made = await record_worktree(ledger, "feat")
    assert made is not None
    ready = await ledger.record_state(made, state="ready", git_dir=Path("/r/.git/worktrees/x"), size=7)
    removing = await ledger.record_state(ready, state="removing")

    assert (made.state, made.branch, made.run, made.is_new_branch) == ("making", "feat", "r1", True)
    assert (ready.state, ready.git_dir, ready.size) == ("ready", Path("/r/.git/worktrees/x"), 7)
    assert (removing.state, removing.git_dir, removing.size) == ("removing", ready.git_dir, 7)
    assert await Ledger(ledger.store).list_worktrees() == [removing]

    await ledger.record_state(removing, state="gone")
    assert await ledger.list_worktrees() == []


async def test_a_path_or_a_branch_is_given_once_until_it_is_gone(ledger: Ledger) -> None:
    first = await record_worktree(ledger, "feat")
    assert first is not None

    assert await record_worktree(ledger, "feat", path="/elsewhere") is None
    assert await record_worktree(ledger, "other", path=str(first.path)) is None
    assert await record_worktree(ledger, "feat", path="/s-worker-feat", repository="/s/.git") is not None

    await ledger.record_state(first, state="gone")
    assert await record_worktree(ledger, "feat") is not None


async def test_worktrees_are_listed_by_repository_the_oldest_first(ledger: Ledger) -> None:
    for branch, repository in (("b", "/r/.git"), ("a", "/r/.git"), ("c", "/s/.git")):
        await record_worktree(ledger, branch, repository=repository)

    assert [one.branch for one in await ledger.list_worktrees(Path("/r/.git"))] == ["b", "a"]
    assert [one.branch for one in await ledger.list_worktrees()] == ["b", "a", "c"]


async def test_looking_makes_no_store(file_ledger: Ledger) -> None:
    assert await file_ledger.list_worktrees() == []
    assert not find_local_folder(file_ledger.store).exists()


async def test_one_process_at_a_time_holds_the_lock_and_a_killed_one_releases_it(file_ledger: Ledger) -> None:
    code = f"""
import anyio
from pathlib import Path
from podium.store.worktree_ledger import Ledger
async def main():
    async with Ledger(Path({str(file_ledger.store)!r})).hold_worktree_lock():
        print("alone", flush=True)
        await anyio.sleep_forever()
anyio.run(main)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "alone\n"
        with anyio.move_on_after(0.2) as scope:
            async with file_ledger.hold_worktree_lock():
                pytest.fail("two were alone")
        process.kill()

    assert scope.cancelled_caught
    async with file_ledger.hold_worktree_lock():
        pass
