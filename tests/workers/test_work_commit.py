"""A worker's commit: its subject, what is in it, and that it is made once even if its worker is killed with its git."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from podium.store.worktree_ledger import Ledger
from podium.values.event import WorkCommitted
from podium.workers.work_commit import commit_work, make_commit_subject
from podium.workspace.git.repository import Repository
from podium.workspace.worktrees.worktree import Worktrees

from ..cli.worker_runs import invoke_podium
from ..workspace.deadly_git import run_with_deadly_git, strike_at_every_call
from ..workspace.merging import Repo
from .worker_lab import WorkerLab, write


@pytest.mark.parametrize(
    ("request_text", "is_sent", "subject"),
    [
        ("Add a login", False, "Add a login"),
        ("\n# Add a login\n\nwith tests", False, "Add a login"),
        ("Add a login\n## Notes\nnone", False, "Add a login"),
        (
            "## Original User Request (context)\nShip it\n\n## Your Assigned Task\nAdd a login\nsoon",
            True,
            "Add a login",
        ),
        ("Just do it", True, "Just do it"),
        ("", False, ""),
    ],
)
def test_the_subject_of_a_commit_is_the_task(request_text: str, is_sent: bool, subject: str) -> None:
    assert make_commit_subject(request_text, is_sent=is_sent) == subject


async def test_what_tools_generate_is_not_committed_and_does_not_keep_the_checkout(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/a", write("a.py"), write("__pycache__/a.cpython-311.pyc"), "written")
    lab.start_commander()
    await lab.wait_ended(run)

    [committed] = lab.events(run, WorkCommitted)
    assert committed.files == ("a.py",)
    assert lab.repo.git("show", "--name-only", "--format=", "feat/a") == "a.py"
    merged = await invoke_podium(lab, "merge", "feat/a", "--yes", "--repo", lab.root)
    cleaned = await invoke_podium(lab, "workers", "--repo", lab.root, "cleanup")
    assert merged.exit_code == 0, merged.stderr
    assert not lab.worktree_path("feat/a").exists(), cleaned.stdout


COMMITS = """
import anyio, sys
from pathlib import Path
from podium.workers.work_commit import commit_work
from podium.workspace.git.repository import Checkout
path, git_dir, common_dir, base = sys.argv[1:]
checkout = Checkout(path=Path(path), git_dir=Path(git_dir), common_dir=Path(common_dir), branch="feat/one", base=base)
anyio.run(lambda: commit_work(checkout, subject="Work"))
"""


@pytest.mark.parametrize(
    "struck_call",
    [
        ("update-ref", "after"),
        ("update-ref", "1"),
        ("update-ref", "3"),
        ("read-tree", "1"),
        pytest.param(None, marks=pytest.mark.slow),
    ],
)
async def test_work_is_committed_once_if_its_worker_is_killed_together_with_git(
    tmp_path: Path, struck_call: tuple[str, str] | None
) -> None:
    repo = Repo(tmp_path / "repo")
    worktrees = Worktrees(repository=Repository.at(repo.path), ledger=Ledger(tmp_path / "home" / "podium.db"))
    checkout = await worktrees.create("feat/one")
    (checkout.path / "new.txt").write_text("work\n")
    shutil.copytree(repo.path, tmp_path / "begin")
    places = (checkout.path, checkout.git_dir, checkout.common_dir, checkout.base)
    argv = [sys.executable, "-c", COMMITS, *map(str, places)]
    if struck_call is None:
        strikes = strike_at_every_call(tmp_path / "git", argv, ("before", "after", *map(str, range(1, 8))))
    else:
        strikes = iter([run_with_deadly_git(tmp_path / "git", argv, *struck_call)])

    for struck in strikes:
        committed = await commit_work(checkout, subject="Work")

        assert struck
        assert repo.git("log", "--format=%s", f"{checkout.base}..feat/one") == "Work", struck
        assert committed.files == ("new.txt",), struck
        assert repo.git("status", "--porcelain", at=checkout.path) == "", struck
        assert list(repo.path.glob(".git/**/*[dx].lock")) == [], struck
        shutil.rmtree(repo.path)
        shutil.copytree(tmp_path / "begin", repo.path)
