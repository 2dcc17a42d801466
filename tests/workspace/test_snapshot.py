"""Snapshots include everything and modify nothing; temporary checkouts are made elsewhere and removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio
import pytest

from podium.system.owned_files import WRITTEN, make_owned_name
from podium.testing import make_repository, run_git
from podium.values.errors import Mistake
from podium.workspace.git.repository import Repository
from podium.workspace.git.snapshot import PREFIX, find_nested_repositories, take_snapshot, temporary_checkout

from .test_repository import canary, repo

__all__ = ["canary", "repo"]


def git_output(directory: Path, *args: str) -> str:
    return run_git(directory, "--no-optional-locks", *args)


def read_state(directory: Path) -> dict[str, object]:
    """Return everything that a snapshot must not change."""
    git_dir = directory / ".git"
    files = {
        path.relative_to(directory): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.is_symlink() and not path.is_relative_to(git_dir / "objects")
    }
    return {
        "files": files,
        "refs": git_output(directory, "for-each-ref"),
        "status": git_output(directory, "status", "--porcelain"),
    }


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a separate folder for temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


GENERATED = """
__pycache__/a.cpython-311.pyc pkg/__pycache__/b.pyc pkg/c.pyo .pytest_cache/v/cache .mypy_cache/3.11/x.json
.ruff_cache/0.1/x .coverage .coverage.host.1 a.egg-info/PKG-INFO htmlcov/index.html .venv/bin/python env/pyvenv.cfg
env/lib/x.py node_modules/left-pad/index.js web/node_modules/a/b.js .next/x target/debug/app .gradle/x build/classes/x
Main.class a.o sub/.DS_Store .app.py.swp app.py~ cache/CACHEDIR.TAG cache/x dist/a-1.0.tar.gz
""".split()
SOURCES = [
    "Cargo.toml",
    "build.gradle",
    "app.py",
    "dist/app.js",
    "sub/build/plan.py",
    "sub/target/aim.py",
    "src/kept.pyc",
]


async def test_files_that_tools_generate_are_in_no_snapshot_unless_git_tracks_them_or_they_are_named(
    repo: Path,
) -> None:
    (repo / "tracked.pyc").write_text("old\n")
    (repo / ".gitignore").write_text("!src/kept.pyc\n")
    run_git(repo, "add", "-f", ".")
    run_git(repo, "commit", "-q", "-m", "more")
    (repo / "tracked.pyc").write_text("new\n")
    for name in (*GENERATED, *SOURCES):
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text("x\n")

    commit = await take_snapshot(repo)

    changed = git_output(repo, "diff", "--name-only", "HEAD", commit).splitlines()
    assert changed == sorted([*SOURCES, "tracked.pyc"])
    assert git_output(repo, "show", f"{commit}:tracked.pyc") == "new\n"


async def test_temporary_files_of_podium_are_in_no_snapshot_and_those_of_killed_processes_are_removed(
    repo: Path,
) -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    (repo / "sub").mkdir()
    living = repo / "sub" / make_owned_name(WRITTEN)
    left = repo / "sub" / living.name.replace(f"-{os.getpid()}-", f"-{ended.pid}-")
    earlier = repo / ".podium-0123456789abcdef"
    for file in (living, left, earlier, repo / ".podium-notes"):
        file.write_text("half")

    commit = await take_snapshot(repo)

    assert git_output(repo, "ls-tree", "-r", "--name-only", commit).split() == [".podium-notes", "a.txt"]
    assert living.exists()
    assert not left.exists()


async def test_a_snapshot_holds_the_whole_working_tree_and_touches_nothing(repo: Path, temporary: Path) -> None:
    (repo / "staged.txt").write_text("staged\n")
    (repo / "gone.txt").write_text("gone\n")
    (repo / ".gitignore").write_text("*.log\n")
    run_git(repo, "add", ".")
    run_git(repo, "commit", "-q", "-m", "more")
    (repo / "staged.txt").write_text("staged anew\n")
    run_git(repo, "add", "staged.txt")
    (repo / "a.txt").write_text("two\n")
    (repo / "gone.txt").unlink()
    (repo / "new dir").mkdir()
    (repo / "new dir" / "a\nb.txt").write_text("new\n")
    (repo / "run.sh").write_text("#!/bin/sh\n")
    (repo / "run.sh").chmod(0o755)
    (repo / "link").symlink_to("/etc/passwd")
    (repo / "noise.log").write_text("ignored\n")
    before = read_state(repo)

    commit = await take_snapshot(repo)

    assert read_state(repo) == before
    assert list(temporary.iterdir()) == []
    assert git_output(repo, "rev-parse", f"{commit}^") == git_output(repo, "rev-parse", "HEAD")
    listed = dict(line.split("\t")[::-1] for line in git_output(repo, "ls-tree", "-rz", commit).split("\0") if line)
    assert sorted(listed) == [".gitignore", "a.txt", "link", "new dir/a\nb.txt", "run.sh", "staged.txt"]
    assert git_output(repo, "show", f"{commit}:a.txt") == "two\n"
    assert git_output(repo, "show", f"{commit}:staged.txt") == "staged anew\n"
    assert git_output(repo, "show", f"{commit}:link") == "/etc/passwd"
    assert listed["run.sh"].startswith("100755")


async def test_a_snapshot_of_what_has_not_changed_is_the_same_tree(repo: Path) -> None:
    commit = await take_snapshot(Repository.at(repo))

    assert git_output(repo, "rev-parse", f"{commit}^{{tree}}") == git_output(repo, "rev-parse", "HEAD^{tree}")


async def test_a_change_in_the_moment_in_which_the_index_was_written_is_seen(repo: Path) -> None:
    run_git(repo, "config", "core.trustctime", "false")
    file, index, moment = repo / "moment.txt", repo / ".git" / "index", (10**18, 10**18)
    file.write_text("first\n")
    os.utime(file, ns=moment)
    run_git(repo, "add", "moment.txt")
    file.write_text("other\n")
    for path in (file, index):
        os.utime(path, ns=moment)

    taken = await take_snapshot(Repository.at(repo))

    assert git_output(repo, "show", f"{taken}:moment.txt") == "other\n"


async def test_a_snapshot_is_made_whatever_has_replaced_a_file(repo: Path) -> None:
    for name in ("pipe", "folder", "link/below"):
        (repo / name).parent.mkdir(exist_ok=True)
        (repo / name).write_text("file\n")
    run_git(repo, "add", ".")
    run_git(repo, "commit", "-q", "-m", "more")
    for name in ("pipe", "folder", "link/below"):
        (repo / name).unlink()
    os.mkfifo(repo / "pipe")
    (repo / "folder").mkdir()
    (repo / "folder" / "below").write_text("now a folder\n")
    (repo / "link").rmdir()
    (repo / "link").symlink_to("folder")
    make_repository(repo / "inner")
    (repo / "inner" / "own.txt").write_text("of another repository\n")

    commit = await take_snapshot(repo)

    assert git_output(repo, "ls-tree", "-r", "--name-only", commit).split() == ["a.txt", "folder/below", "link"]
    assert await find_nested_repositories(repo) == ["inner"]


async def test_a_snapshot_in_the_middle_of_a_conflict_has_the_files_as_they_are(repo: Path) -> None:
    for branch, text in (("left", "1\n"), ("right", "2\n")):
        run_git(repo, "checkout", "-q", "-b", branch, "main")
        (repo / "a.txt").write_text(text)
        run_git(repo, "commit", "-q", "-am", branch)
    subprocess.run(["git", "merge", "-q", "left"], cwd=repo, capture_output=True)
    before = read_state(repo)

    commit = await take_snapshot(repo)

    assert "<<<<<<<" in git_output(repo, "show", f"{commit}:a.txt")
    assert read_state(repo) == before


async def test_without_commits_or_a_repository_there_is_no_snapshot(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    make_repository(tmp_path / "unborn")

    with pytest.raises(Mistake, match=r"has no commits yet"):
        await take_snapshot(tmp_path / "unborn")
    with pytest.raises(Mistake, match=r"is not in a git repository"):
        await take_snapshot(tmp_path / "empty")


async def test_a_temporary_checkout_has_a_folder_of_its_own_that_is_removed(repo: Path, temporary: Path) -> None:
    (repo / "a.txt").write_text("two\n")
    (repo / "new.txt").write_text("new\n")
    place = Repository.at(repo)
    before = read_state(repo)

    async with temporary_checkout(place, await take_snapshot(place)) as checkout:
        inside = sorted(path.name for path in checkout.path.iterdir())
        text = (checkout.path / "a.txt").read_text()
        (checkout.path / "left over").write_text("by a check\n")
        assert not checkout.path.is_relative_to(repo)
        assert checkout.git_dir.parent == repo / ".git" / "worktrees"

    assert (inside, text) == ([".git", "a.txt", "new.txt"], "two\n")
    assert list(temporary.iterdir()) == []
    assert git_output(repo, "worktree", "list").count("\n") == 1
    assert read_state(repo) == before


async def test_a_temporary_checkout_is_removed_when_the_work_is_cancelled(repo: Path, temporary: Path) -> None:
    with anyio.CancelScope() as scope:
        async with temporary_checkout(repo, "HEAD"):
            scope.cancel()
            await anyio.sleep_forever()

    assert list(temporary.iterdir()) == []
    assert git_output(repo, "worktree", "list").count("\n") == 1


async def test_leftovers_of_a_killed_process_are_removed_by_the_next_and_live_checkouts_are_kept(
    repo: Path, temporary: Path
) -> None:
    code = f"""
import anyio, os, signal
from pathlib import Path
from podium.workspace.git.snapshot import temporary_checkout
async def main():
    async with temporary_checkout(Path({str(repo)!r}), "HEAD"):
        os.kill(os.getpid(), signal.SIGKILL)
anyio.run(main)
"""
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    [left] = temporary.glob(f"{PREFIX}*")

    async with temporary_checkout(repo, "HEAD") as first, temporary_checkout(repo, "HEAD") as second:
        found = {path.name for path in temporary.iterdir()}

        assert found == {first.path.name, second.path.name}
        assert left.name not in found
        assert git_output(repo, "worktree", "list").count("\n") == 3
    assert list(temporary.iterdir()) == []


async def test_a_folder_that_is_gone_after_a_restart_is_forgotten(repo: Path, temporary: Path) -> None:
    place = Repository.at(repo)
    lost = temporary / f"{PREFIX}lost" / f"{PREFIX}lost"
    lost.parent.mkdir()
    run_git(repo, "worktree", "add", "-q", "--detach", str(lost))
    lost.parent.rename(temporary / "elsewhere")

    async with temporary_checkout(place, "main"):
        pass

    assert git_output(repo, "worktree", "list").count("\n") == 1


async def test_a_name_that_looks_like_an_option_is_no_commit(repo: Path) -> None:
    with pytest.raises(Mistake, match=r"commit '--help' not found"):
        async with temporary_checkout(repo, "--help"):
            pass


async def test_nothing_in_the_repository_runs_when_a_temporary_checkout_is_made(
    repo: Path, canary: Path, tmp_path: Path
) -> None:
    (repo / ".gitattributes").write_text("*.txt filter=x\n")
    run_git(repo, "add", ".")
    run_git(repo, "commit", "-q", "-m", "attributes")
    included = tmp_path / "included"
    included.write_text(f'[filter "x"]\n\tsmudge = {canary}\n\tclean = {canary}\n[core]\n\tfsmonitor = {canary}\n')
    # Applies only in the worktree that is about to be created.
    run_git(repo, "config", "includeIf.gitdir:**/worktrees/**.path", str(included))
    (repo / ".git" / "hooks").mkdir(exist_ok=True)
    (repo / ".git" / "hooks" / "post-checkout").symlink_to(canary)
    (repo / "a.txt").write_text("two\n")

    async with temporary_checkout(repo, await take_snapshot(repo)) as checkout:
        (checkout.path / "a.txt").write_text("three\n")
        commit = await take_snapshot(checkout)

    assert git_output(repo, "show", f"{commit}:a.txt") == "three\n"
    assert not (tmp_path / "trace").exists()
