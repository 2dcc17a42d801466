"""The merge train: branches that merge and pass the checks are in; others are left out, with the reason."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from anyio import CancelScope, sleep_forever

from podium.values.errors import Mistake
from podium.workspace.merging.fast_forward import fast_forward
from podium.workspace.merging.merge_train import (
    CheckResult,
    LeftOutBranch,
    Train,
    TrainBranch,
    build_train,
    format_conflict,
    sort_by_dependency,
    tail_output,
)

from .merging import LINES, Repo, check_not_broken, replace_line


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


async def run_train(repo: Repo, *branches: TrainBranch) -> Train:
    return await build_train(repo.path, branches, onto="main", integration="podium/merge", check=check_not_broken)


async def test_a_train_for_pull_requests_creates_no_branch(repo: Repo) -> None:
    tip = repo.branch("feat/one", {"new.txt": "new\n"})
    before = repo.git("for-each-ref")

    train = [TrainBranch(branch="feat/one", commit=tip)]
    result = await build_train(repo.path, train, onto="main", integration=None, check=check_not_broken)

    assert ([one.branch for one in result.merged], result.ref) == (["feat/one"], None)
    assert repo.git("for-each-ref") == before


def reasons(result: Train) -> dict[str, str]:
    return {one.branch: one.reason for one in result.left_out}


async def test_branches_that_conflict_or_fail_are_left_out_and_the_others_are_merged(repo: Repo) -> None:
    repo.branch("one", {"a.txt": replace_line(0, "one")})
    repo.branch("clashing", {"a.txt": replace_line(0, "clashing")})
    repo.branch("failing", {"broken.txt": "x\n"})
    repo.branch("last", {"b.txt": replace_line(0, "last")})
    main, before = repo.tip(), repo.visible_state()

    result = await run_train(
        repo,
        repo.train_branch("one"),
        repo.train_branch("clashing"),
        repo.train_branch("failing"),
        repo.train_branch("last"),
    )

    assert [one.branch for one in result.merged] == ["one", "last"]
    clash, failure = result.left_out
    assert (clash.branch, clash.reason, clash.files) == ("clashing", "conflict", ("a.txt",))
    assert "Merge conflict in a.txt" in clash.why
    assert (failure.branch, failure.reason, failure.why) == ("failing", "check", "make test fails after the merge")
    assert failure.output.endswith("1 failed: broken.txt")
    assert len(failure.output.splitlines()) == 40
    assert (result.base, result.ref) == (main, "refs/heads/podium/merge")
    assert repo.tip("podium/merge") == result.commit == result.merged[-1].commit
    assert repo.tree(result.commit) == result.tree == result.merged[-1].tree
    assert repo.git("show", f"{result.commit}:a.txt") == replace_line(0, "one").strip()
    assert repo.git("show", f"{result.commit}:b.txt") == replace_line(0, "last").strip()
    assert "broken.txt" not in repo.git("ls-tree", "-r", "--name-only", result.commit)
    after = repo.visible_state()
    assert repo.tip() == main
    assert {part: after[part] for part in ("head", "index", "status", "worktrees")} == {
        part: before[part] for part in ("head", "index", "status", "worktrees")
    }


async def test_the_commits_of_a_train_are_merges_by_podium(repo: Repo) -> None:
    feat = repo.branch("feat", {"a.txt": replace_line(0, "feat")})

    result = await run_train(repo, repo.train_branch("feat"))

    assert repo.git("show", "-s", "--format=%P", result.commit) == f"{repo.tip()} {feat}"
    assert repo.git("show", "-s", "--format=%s|%an|%ae|%cn", result.commit) == (
        "Merge branch 'feat'|Podium|podium@localhost|Podium"
    )
    assert repo.git("fsck", "--strict") == ""


async def test_the_checked_tree_is_the_merged_tree(repo: Repo, tmp_path: Path) -> None:
    repo.branch("one", {"a.txt": replace_line(0, "one")})
    repo.branch("two", {"b.txt": replace_line(0, "two")})
    checked: list[str] = []

    async def check(path: Path) -> CheckResult:
        assert not path.is_relative_to(repo.path)
        checked.append(repo.git("rev-parse", "HEAD^{tree}", at=path))
        (path / "a.txt").write_text("what a check writes stays out\n")
        return CheckResult(passed=True)

    result = await build_train(
        repo.path, [repo.train_branch("one"), repo.train_branch("two")], onto="main", integration="next", check=check
    )

    assert checked == [one.tree for one in result.merged]
    assert len(repo.git("worktree", "list").splitlines()) == 1


async def test_branches_go_after_what_they_build_on(repo: Repo) -> None:
    repo.branch("base", {"a.txt": replace_line(0, "base")})
    repo.branch("on-base", {"a.txt": replace_line(0, "on base")}, start="base")
    repo.branch("alone", {"b.txt": replace_line(0, "alone")})

    result = await run_train(
        repo, repo.train_branch("on-base", "base"), repo.train_branch("alone"), repo.train_branch("base")
    )

    assert [one.branch for one in result.merged] == ["alone", "base", "on-base"]
    assert repo.git("show", f"{result.commit}:a.txt") == replace_line(0, "on base").strip()


async def test_branches_built_on_a_left_out_branch_are_left_out_too(repo: Repo) -> None:
    repo.branch("failing", {"broken.txt": "x\n"})
    repo.branch("mending", {"broken.txt": None}, start="failing")
    repo.branch("further", {"b.txt": replace_line(0, "further")}, start="mending")
    repo.branch("alone", {"b.txt": replace_line(5, "alone")})

    result = await run_train(
        repo,
        repo.train_branch("failing"),
        repo.train_branch("mending", "failing"),
        repo.train_branch("further", "mending"),
        repo.train_branch("alone"),
    )

    assert [one.branch for one in result.merged] == ["alone"]
    assert [(one.branch, one.why) for one in result.left_out[1:]] == [
        ("mending", "it builds on failing, which was left out"),
        ("further", "it builds on mending, which was left out"),
    ]


async def test_a_branch_may_build_on_a_merged_or_deleted_branch_but_not_on_another_one(repo: Repo) -> None:
    repo.branch("elsewhere", {"a.txt": replace_line(0, "elsewhere")})
    repo.git("branch", "merged", "main")
    for name in ("one", "two", "three"):
        repo.branch(name, {f"{name}.txt": "1\n"})

    result = await run_train(
        repo,
        repo.train_branch("one", "merged"),
        repo.train_branch("two", "gone"),
        repo.train_branch("three", "elsewhere"),
    )

    assert [one.branch for one in result.merged] == ["one", "two"]
    assert result.left_out[0].why == "it builds on elsewhere, which is neither in this train nor in main; merge it too"


def test_branches_that_wait_for_each_other_are_named() -> None:
    branches = [
        TrainBranch(branch="first", commit="", after=("a",)),
        TrainBranch(branch="a", commit="", after=("b",)),
        TrainBranch(branch="b", commit="", after=("other", "c")),
        TrainBranch(branch="c", commit="", after=("a",)),
    ]

    with pytest.raises(Mistake, match="depend on each other: a → b → c → a;"):
        sort_by_dependency(branches)
    with pytest.raises(Mistake, match="depend on each other: a → a;"):
        sort_by_dependency([TrainBranch(branch="a", commit="", after=("a",))])
    with pytest.raises(Mistake, match="a was given more than once"):
        sort_by_dependency([TrainBranch(branch="a", commit=""), TrainBranch(branch="a", commit="")])


async def test_a_branch_that_moved_since_it_was_reviewed_or_is_gone_is_left_out(repo: Repo) -> None:
    repo.branch("feat", {"a.txt": replace_line(0, "reviewed")})
    reviewed = repo.train_branch("feat")
    repo.branch("feat", {"a.txt": replace_line(0, "pushed later")}, start="feat")

    result = await run_train(repo, reviewed, TrainBranch(branch="nope", commit=reviewed.commit))

    assert reasons(result) == {"feat": "moved", "nope": "missing"}
    assert (result.ref, result.commit) == (None, repo.tip())


async def test_a_branch_that_is_in_already_adds_nothing(repo: Repo) -> None:
    repo.git("branch", "done", "main")

    result = await run_train(repo, repo.train_branch("done"))

    assert [one.branch for one in result.merged] == ["done"]
    assert result.commit == repo.tip()


async def test_an_integration_branch_that_exists_is_left_alone(repo: Repo) -> None:
    repo.branch("feat", {"a.txt": replace_line(0, "feat")})
    repo.git("branch", "podium/merge", "main")

    second, third = await run_train(repo, repo.train_branch("feat")), await run_train(repo, repo.train_branch("feat"))

    assert (second.ref, third.ref) == ("refs/heads/podium/merge-2", "refs/heads/podium/merge-3")
    assert repo.tip("podium/merge") == repo.tip()


@pytest.mark.parametrize("name", ["", "a..b", "-x", "a b", "@{-1}", "a\nb", "x.lock"])
async def test_a_bad_name_for_the_integration_branch_is_refused_before_anything_is_checked(
    repo: Repo, name: str
) -> None:
    async def check(path: Path) -> CheckResult:
        raise AssertionError(path)

    repo.branch("feat", {"a.txt": replace_line(0, "feat")})

    with pytest.raises(Mistake, match="is not a valid name for the integration branch"):
        await build_train(repo.path, [repo.train_branch("feat")], onto="main", integration=name, check=check)


async def test_a_name_that_conflicts_with_an_existing_branch_is_refused(repo: Repo) -> None:
    repo.branch("feat", {"a.txt": replace_line(0, "feat")})

    with pytest.raises(Mistake, match="cannot create the branch feat/merge"):
        await build_train(
            repo.path, [repo.train_branch("feat")], onto="main", integration="feat/merge", check=check_not_broken
        )


async def test_a_conflict_is_reported_with_both_sides(repo: Repo) -> None:
    repo.branch("one", {"a.txt": replace_line(4, "``` from one"), "old.txt": None, "one.txt": LINES})
    repo.branch("two", {"a.txt": replace_line(4, "from two"), "old.txt": None, "two.txt": LINES})

    left_out = (await run_train(repo, repo.train_branch("one"), repo.train_branch("two"))).left_out[0]
    told = format_conflict(left_out)

    assert set(left_out.files) == {"a.txt", "old.txt", "one.txt", "two.txt"}
    assert "old.txt renamed to one.txt in main + one and to two.txt in two" in told
    assert f"The merge of two (commit {repo.tip('two')}) into commit {left_out.onto}" in told
    assert "line 5:\n<<<<<<< main + one\n``` from one\n=======\nfrom two\n>>>>>>> two\n````" in told


async def test_binary_files_and_odd_names_are_left_out_by_name(repo: Repo) -> None:
    odd = 'new\nline "quoted"'
    repo.commit({"b.bin": b"\0\1", odd: "0\n"})
    repo.branch("one", {"b.bin": b"\0one", odd: "1\n"})
    repo.branch("two", {"b.bin": b"\0two", odd: "2\n"})

    left_out = (await run_train(repo, repo.train_branch("one"), repo.train_branch("two"))).left_out[0]

    assert left_out.files == ("b.bin", odd)
    assert "Cannot merge binary files: b.bin" in left_out.why
    assert 'new line "quoted"\nline 1:\n<<<<<<< main + one' in left_out.output


def test_the_end_of_what_a_check_printed_is_kept() -> None:
    assert tail_output("a\nb\n\n") == "a\nb"
    assert len(tail_output("x" * 100_000)) == 8 * 1024


async def test_a_branch_without_history_in_common_is_left_out(repo: Repo) -> None:
    empty = repo.git("hash-object", "-w", "-t", "tree", "/dev/null")
    repo.git("branch", "stranger", repo.git("commit-tree", empty, "-m", "alone"))

    left_out = (await run_train(repo, repo.train_branch("stranger"))).left_out[0]

    assert (left_out.reason, left_out.why) == ("conflict", "main and stranger have no commit in common")
    assert format_conflict(left_out).endswith("- none in particular")


async def test_a_check_that_breaks_leaves_everything_as_it_was_and_the_next_try_works(repo: Repo) -> None:
    repo.branch("feat", {"a.txt": replace_line(0, "feat")})
    before = repo.visible_state()

    async def breaking(path: Path) -> CheckResult:
        raise RuntimeError("the machine is on fire")

    with pytest.raises(RuntimeError, match="on fire"):
        await build_train(
            repo.path, [repo.train_branch("feat")], onto="main", integration="podium/merge", check=breaking
        )
    assert repo.visible_state() == before

    result = await run_train(repo, repo.train_branch("feat"))
    assert result.ref == "refs/heads/podium/merge"


async def test_a_train_that_is_stopped_leaves_everything_as_it_was(repo: Repo) -> None:
    repo.branch("feat", {"a.txt": replace_line(0, "feat")})
    before = repo.visible_state()
    checked: list[Path] = []

    with CancelScope() as scope:

        async def stopped(path: Path) -> CheckResult:
            checked.append(path)
            scope.cancel()
            await sleep_forever()
            raise AssertionError

        await build_train(
            repo.path, [repo.train_branch("feat")], onto="main", integration="podium/merge", check=stopped
        )

    assert scope.cancelled_caught
    assert repo.visible_state() == before
    assert not checked[0].exists()


KILLED = """
import os, signal, sys
from pathlib import Path
import anyio
from podium.workspace.merging.merge_train import TrainBranch, build_train

async def check(path):
    print(path, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    branches = [TrainBranch(branch="feat", commit=sys.argv[2])]
    await build_train(Path(sys.argv[1]), branches, onto="main", integration="x", check=check)

anyio.run(main)
"""


async def test_a_process_killed_in_the_middle_leaves_the_target_and_the_next_try_works(repo: Repo) -> None:
    feat = repo.branch("feat", {"a.txt": replace_line(0, "feat")})
    before = repo.visible_state()

    killed = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", KILLED, str(repo.path), feat], capture_output=True, check=False
    )
    left = Path(os.fsdecode(killed.stdout.strip()))
    result = await run_train(repo, repo.train_branch("feat"))

    assert killed.returncode == -signal.SIGKILL
    assert repo.visible_state()["status"] == before["status"]
    assert [one.branch for one in result.merged] == ["feat"]
    assert not left.exists()
    assert len(repo.git("worktree", "list").splitlines()) == 1


async def test_no_hook_driver_or_filter_of_the_repository_runs(repo: Repo, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_text(f"#!/bin/sh\necho $0 >>{tmp_path}/trace\ncat 2>/dev/null\n")
    canary.chmod(0o755)
    repo.commit({".gitattributes": "a.txt merge=x\nb.txt diff=x\n"})
    repo.branch("feat", {"a.txt": replace_line(0, "feat"), "b.txt": replace_line(0, "feat")})
    repo.branch("other", {"a.txt": replace_line(9, "other"), "c.txt": "1\n"})
    repo.branch("smudged", {"d.txt": "1\n", "sub/.gitattributes": "* filter=x\n", "sub/e.txt": "1\n"})
    for hook in ("post-checkout", "reference-transaction", "post-index-change", "post-merge", "pre-commit"):
        (repo.path / ".git" / "hooks").mkdir(exist_ok=True)
        (repo.path / ".git" / "hooks" / hook).symlink_to(canary)
    with (repo.path / ".git" / "config").open("a") as settings:
        settings.write(
            f'[merge "x"]\ndriver = {canary}\n[diff "x"]\ntextconv = {canary}\n[core]\nfsmonitor = {canary}\n'
            f'[filter "x"]\nsmudge = {canary}\nclean = {canary}\n[gpg]\nprogram = {canary}\n[commit]\ngpgSign = true\n'
        )

    result = await run_train(repo, repo.train_branch("feat"), repo.train_branch("other"), repo.train_branch("smudged"))
    await fast_forward(
        repo.path,
        "main",
        commit=result.merged[0].commit,
        expected_tree=result.merged[0].tree,
        expected_old=result.base,
    )

    assert [one.branch for one in result.merged] == ["feat", "smudged"]
    assert reasons(result) == {"other": "conflict"}
    assert not (tmp_path / "trace").exists()
    repo.git("status")
    assert (tmp_path / "trace").exists(), "the canary would have sung"


async def test_twenty_branches_go_through(repo: Repo) -> None:
    names = [f"b{number:02}" for number in range(20)]
    for number, name in enumerate(names):
        repo.branch(name, {f"own-{number}.txt": "1\n", "a.txt": replace_line(number // 2 * 3, name)})

    result = await run_train(repo, *map(repo.train_branch, names))

    assert [one.branch for one in result.merged] == names[::2]
    assert [one.branch for one in result.left_out] == names[1::2]
    assert isinstance(result.left_out[0], LeftOutBranch)
    assert repo.git("rev-list", "--count", "--first-parent", f"main..{result.commit}") == "10"
