"""After a power failure at any moment, the repository has what Podium said is done."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from podium.store.worktree_ledger import Ledger
from podium.workers.work_commit import commit_work
from podium.workspace.git.lost_files import restore_lost_files
from podium.workspace.git.repository import Repository
from podium.workspace.merging.fast_forward import fast_forward
from podium.workspace.worktrees.worktree import Worktrees

from .merging import LINES, Repo
from .recorded_disk import RecordedDisk, find_lack

pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(900)]

CUTS = 36


class Work:
    """What is done on the disk: workers' commits that are merged one after the other."""

    def __init__(self, disk: RecordedDisk) -> None:
        self.disk = disk
        self.done: list[tuple[int, str, str]] = []
        """The moment at which a branch was reported to be at a commit."""

    @property
    def worktrees(self) -> Worktrees:
        return Worktrees(repository=Repository.at(self.disk.path / "repo"), ledger=Ledger(self.disk.path / "podium.db"))

    async def do(self, repo: Repo, number: int) -> None:
        branch = f"feat/{number}"
        checkout = await self.worktrees.create(branch)
        self.note(branch, checkout.base)
        (checkout.path / f"new-{number}.txt").write_text(LINES * number)
        (checkout.path / "a.txt").write_text(f"{number}\n{LINES}")
        committed = await commit_work(checkout, subject=f"Work {number}")
        self.note(branch, committed.commit)
        tree = repo.tree(committed.commit)
        await fast_forward(repo.path, "main", commit=committed.commit, expected_tree=tree, expected_old=checkout.base)
        self.note("main", committed.commit)

    def note(self, branch: str, commit: str) -> None:
        self.done.append((self.disk.moment, branch, commit))


async def test_what_is_done_is_in_the_repository_after_a_power_failure(tmp_path: Path) -> None:
    if lack := find_lack():
        pytest.skip(f"no power can be cut here: {lack}")
    disk = RecordedDisk(tmp_path)
    work = Work(disk)
    with disk.record():
        repo = Repo(disk.path / "repo")
        subprocess.run(["sync", "-f", disk.path], check=True)
        begin = disk.moment
        for number in range(1, 5):
            await work.do(repo, number)
        end = disk.moment
    done = tuple(work.done)  # the next work in an image is noted, too
    chance = random.Random(1)
    moments = [chance.randint(begin, end) for _ in range(CUTS)] + [moment for moment, _, _ in done]

    wrong = []
    for moment in disk.cut_power(moments, chance):
        said = {branch: commit for at, branch, commit in done if at <= moment}
        wrong += [f"{moment}: {one}" for one in await find_wrong(work, repo, said)]

    assert wrong == [], "\n".join(wrong)


async def find_wrong(work: Work, repo: Repo, said: dict[str, str]) -> list[str]:
    """Return what is wrong in the repository after a power failure, and with the next work in it."""
    wrong: list[str] = []
    said_by_git = run_git(repo.path, "fsck", "--no-dangling").splitlines()
    if damage := [line for line in said_by_git if not line.startswith("notice")]:
        wrong.append(f"damaged: {damage}")
    listed = run_git(repo.path, "for-each-ref", "--format=%(refname:short) %(objectname)").splitlines()
    refs = {name: commit for name, _, commit in (line.partition(" ") for line in listed)}
    for branch, commit in said.items():
        found = refs.get(branch, "")
        if (
            found != commit
            and subprocess.run(
                ["git", "merge-base", "--is-ancestor", commit, found], cwd=repo.path, capture_output=True
            ).returncode
        ):
            wrong.append(f"{branch} is at {found}, but was at {commit}")
    if "main" in said and (status := run_git(repo.path, "status", "--porcelain")) and not wrong:
        work_is_going_on = refs["main"] == said["main"] and (repo.path / ".git" / "podium-move.json").exists()
        wrong += [] if work_is_going_on else [f"main: {status}"]
    try:
        await work.worktrees.reconcile()
        for row in await work.worktrees.ledger.list_worktrees():
            await restore_lost_files(Repository.at(row.path))
            await work.worktrees.find_checkout(row.branch)
            if row.branch in said and (status := run_git(row.path, "status", "--porcelain")):
                wrong += [] if said[row.branch] == row.base else [f"{row.branch}: {status}"]
        await work.do(repo, 9)
    except Exception as error:
        wrong.append(f"the next work failed: {error!r}")
    return wrong


def run_git(at: Path, *args: Any) -> str:
    done = subprocess.run(["git", *args], cwd=at, capture_output=True, text=True)
    return (done.stdout if done.returncode == 0 else f"{done.stdout}{done.stderr}").strip()
