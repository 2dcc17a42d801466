"""Running git: it does its work, and nothing that a worker wrote is executed."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from podium.testing import make_repository, run_git
from podium.values.errors import Mistake, OutsideFailed
from podium.workspace.git.repository import Repository, call_git, find_trusted_program

from ..system.descriptors import few_descriptors


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo", {"a.txt": "one\n"})


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """Make a program that leaves a trace when it runs."""
    program = tmp_path / "canary"
    program.write_text(f"#!/bin/sh\necho ran >>{tmp_path}/trace\ncat 2>/dev/null\n")
    program.chmod(0o755)
    return program


async def test_git_returns_exit_code_output_and_error_text(repo: Path) -> None:
    fine = await call_git(repo, "rev-parse", "--abbrev-ref", "HEAD")
    wrong = await call_git(repo, "rev-parse", "--verify", "nonexistent")
    fed = await call_git(repo, "hash-object", "--stdin", stdin=b"one\n")

    assert (fine.code, fine.out) == (0, b"main\n")
    assert wrong.code == 128
    assert "fatal" in wrong.err
    assert fed.out == b"5626abf0f72e58d7a153368ba57db4c673c0e171\n"


@pytest.mark.parametrize(
    "setting",
    [
        "core.fsmonitor",
        "diff.external",
        "core.pager",
        "diff.x.textconv",
        "diff.x.command",
        "filter.x.clean",
        "filter.x.process",
    ],
)
async def test_a_command_in_the_repositorys_settings_does_not_run(
    repo: Path, canary: Path, tmp_path: Path, setting: str
) -> None:
    run_git(repo, "config", setting, str(canary))
    run_git(repo, "config", "filter.x.required", "true")
    (repo / ".gitattributes").write_text("*.txt diff=x filter=x\n")
    (repo / "a.txt").write_text("two\n")

    diff = await call_git(repo, "diff", "--", "a.txt")
    status = await call_git(repo, "status", "--porcelain")

    assert b"+two" in diff.out
    assert b" M a.txt" in status.out
    assert not (tmp_path / "trace").exists()


async def test_a_merge_driver_of_the_repository_does_not_run(repo: Path, canary: Path, tmp_path: Path) -> None:
    (repo / ".gitattributes").write_text("*.txt merge=x\n")
    run_git(repo, "add", ".")
    run_git(repo, "commit", "-q", "-m", "attributes")
    for branch, text in (("left", "1\n"), ("right", "2\n")):
        run_git(repo, "checkout", "-q", "-b", branch, "main")
        (repo / "a.txt").write_text(text)
        run_git(repo, "commit", "-q", "-am", branch)
    run_git(repo, "config", "merge.x.driver", f"{canary} %A")

    merged = await call_git(repo, "merge-tree", "--write-tree", "left", "right")

    assert merged.code == 1
    assert not (tmp_path / "trace").exists()


async def test_hooks_do_not_run(repo: Path, canary: Path, tmp_path: Path) -> None:
    for hook in ("pre-commit", "post-checkout", "post-index-change"):
        (repo / ".git" / "hooks").mkdir(exist_ok=True)
        (repo / ".git" / "hooks" / hook).symlink_to(canary)
    (repo / "a.txt").write_text("two\n")

    assert (await call_git(repo, "commit", "-q", "-am", "second")).code == 0
    assert (await call_git(repo, "worktree", "add", "-q", str(tmp_path / "w"), "-b", "w")).code == 0
    assert not (tmp_path / "trace").exists()


async def test_a_missing_object_is_not_fetched_from_where_the_repository_says(
    repo: Path, canary: Path, tmp_path: Path
) -> None:
    run_git(repo, "config", "extensions.partialClone", "origin")
    run_git(repo, "config", "remote.origin.url", f"file://{tmp_path}/elsewhere")
    run_git(repo, "config", "remote.origin.promisor", "true")
    run_git(repo, "config", "remote.origin.uploadpack", str(canary))

    missing = await call_git(repo, "cat-file", "-p", "1" * 40)
    ext = await call_git(repo, "ls-remote", f"ext::{canary}")

    assert missing.code != 0
    assert ext.code != 0
    assert not (tmp_path / "trace").exists()


async def test_settings_of_the_environment_do_not_reach_git(
    repo: Path, canary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gitconfig").write_text(f"[core]\n\tfsmonitor = {canary}\n")
    for name, value in (
        ("GIT_DIR", "/nonexistent"),
        ("GIT_EXTERNAL_DIFF", str(canary)),
        ("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig")),
    ):
        monkeypatch.setenv(name, value)
    (repo / "a.txt").write_text("two\n")

    assert b"+two" in (await call_git(repo, "diff")).out
    assert not (tmp_path / "trace").exists()


async def test_a_directory_shaped_like_a_bare_repository_is_not_taken_for_one(repo: Path) -> None:
    bare = repo / "sub"
    run_git(repo, "init", "-q", "--bare", str(bare))

    done = await call_git(bare, "rev-parse", "--git-dir")

    assert done.code != 0
    assert "bare" in done.err


def test_a_program_in_the_checkout_is_never_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "podium-test-program"
    for folder in ("checkout/bin", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).write_text("#!/bin/sh\n")
        (tmp_path / folder / name).chmod(0o755)
    monkeypatch.chdir(tmp_path / "checkout" / "bin")
    path = f".{os.pathsep}{os.pathsep}{tmp_path}/checkout/bin{os.pathsep}{tmp_path}/elsewhere"
    monkeypatch.setenv("PATH", path)

    assert find_trusted_program(name, outside=tmp_path / "checkout") == f"{tmp_path}/elsewhere/{name}"
    assert find_trusted_program("no-such-program-here", outside=tmp_path) is None


async def test_git_that_takes_too_long_is_stopped(repo: Path) -> None:
    os.mkfifo(repo / "fifo")

    with pytest.raises(OutsideFailed, match=r"git hash-object timed out after 0\.3 s"):
        await call_git(repo, "hash-object", "fifo", timeout=0.3)


async def test_git_that_prints_too_much_is_stopped(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.workspace.git.repository.LARGEST_OUTPUT", 1 << 20)
    (repo / "big").write_bytes(b"x" * 2_000_000)
    run_git(repo, "add", "big")

    with pytest.raises(OutsideFailed, match=r"^git cat-file printed more than 1 MiB; request less output$"):
        await call_git(repo, "cat-file", "blob", ":big")


async def test_without_free_descriptors_git_is_not_started_and_the_reason_is_one_sentence(repo: Path) -> None:
    with few_descriptors(0) as limit, pytest.raises(OutsideFailed) as error:
        await call_git(repo, "status")

    assert str(error.value) == (
        f"git status could not be started: this process has too many open files (limit: {limit}); "
        "raise the limit with ulimit -n"
    )


async def test_git_that_is_cancelled_removes_its_lock(repo: Path, tmp_path: Path) -> None:
    message, lock = tmp_path / "message", repo / ".git" / "index.lock"
    os.mkfifo(message)
    (repo / "a.txt").write_text("two\n")

    async with anyio.create_task_group() as group:
        group.start_soon(call_git, repo, "commit", "-a", "-F", str(message))
        writer = await anyio.to_thread.run_sync(os.open, message, os.O_WRONLY)  # returns when git reads its message
        was_locked = lock.exists()
        group.cancel_scope.cancel()

    os.close(writer)
    assert was_locked
    assert not lock.exists()


def test_a_submodule_of_another_folder_is_not_taken_for_this_one(tmp_path: Path) -> None:
    outer, unpacked = tmp_path / "outer", tmp_path / "outer" / "unpacked"
    unpacked.mkdir(parents=True)
    make_repository(outer)
    (outer / ".git" / "modules").mkdir()
    run_git(outer, "init", "-q", "sub", f"--separate-git-dir={outer}/.git/modules/sub")
    run_git(outer / "sub", "config", "core.worktree", "../../../sub")
    (unpacked / ".git").write_text("gitdir: ../.git/modules/sub\n")

    assert Repository.at(outer / "sub").root == outer / "sub"
    with pytest.raises(Mistake, match="not to a worktree or submodule"):
        Repository.at(unpacked)
