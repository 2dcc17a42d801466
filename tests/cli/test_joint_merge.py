"""`podium merge` for a worker with several repositories: all targets move, or none."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator

import pytest

from podium.core.placement import WorkerOptions

from ..workers.worker_lab import WorkerLab, write
from ..workspace.merging import LINES, Repo
from .worker_runs import invoke_podium, open_lab

BRANCH = "feat/both"


@pytest.fixture
async def lab(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WorkerLab]:
    async with open_lab() as lab:
        monkeypatch.chdir(lab.repo.path)
        yield lab


@pytest.fixture
def other(lab: WorkerLab) -> Repo:
    return Repo(lab.folder / "other")


async def work_in_both(lab: WorkerLab, other: Repo, branch: str = BRANCH, name: str = "two.txt") -> str:
    """Have a worker write a file in each repository, and return its run."""
    there = lab.folder / f"other-worker-{branch.replace('/', '-')}"
    run = await lab.delegate(
        branch,
        write(f"one-{name}", "one\n"),
        write(f"{there}/{name}", "two\n"),
        "done",
        options=WorkerOptions(also=(str(other.path),)),
    )
    await invoke_podium(lab, "workers", "wait")
    assert (await lab.wait_ended(run)).outcome == "succeeded", lab.logs(run)
    return run


def tips(*repos: Repo) -> list[str]:
    return [repo.tip() for repo in repos]


def list_integration_branches(*repos: Repo) -> list[str]:
    return [repo.git("branch", "--list", "podium/merge-*") for repo in repos]


async def test_both_targets_move_to_the_reviewed_trees_and_the_checks_of_each_repository_run(
    lab: WorkerLab, other: Repo
) -> None:
    lab.write_settings("checks:\n  has-a: [test, -f, a.txt]\n")
    await work_in_both(lab, other)
    before = tips(lab.repo, other)

    asked = await invoke_podium(lab, "merge", BRANCH, "--json")
    fields = json.loads(asked.stdout)
    alone = await invoke_podium(lab, "merge", BRANCH, "--repo", str(other.path), "--yes")
    wrong = await invoke_podium(lab, "merge", BRANCH, "--tree", "0" * 40, "--yes")

    assert (asked.exit_code, alone.exit_code, wrong.exit_code) == (3, 2, 6)
    assert f"podium merge {BRANCH} --tree {fields['joint_tree']} --yes" in asked.stderr
    assert f"must be merged together; use: podium merge {BRANCH} --repo {lab.root}" in alone.stderr
    assert tips(lab.repo, other) == before
    assert [fields["checks"], fields["also"][0]["checks"]] == [["has-a"], ["has-a"]]

    agreed = await invoke_podium(lab, "merge", BRANCH, "--tree", fields["joint_tree"], "--yes")

    assert agreed.exit_code == 0, agreed.stderr
    assert f"main in {other.path} is now at {other.tip()[:12]}" in agreed.stderr
    assert (lab.repo.path / "one-two.txt").read_text() == "one\n"
    assert (other.path / "two.txt").read_text() == "two\n"
    assert list_integration_branches(lab.repo, other) == ["", ""]
    again = await invoke_podium(lab, "merge", BRANCH, "--yes")
    assert (again.exit_code, "all targets already contain the result" in again.stderr) == (0, True)


@pytest.mark.slow
async def test_a_branch_that_fails_in_one_repository_is_left_out_of_all(lab: WorkerLab, other: Repo) -> None:
    await work_in_both(lab, other)
    await work_in_both(lab, other, "feat/good", "good.txt")
    other.commit({"podium.yaml": "checks: {no-two: [test, '!', -f, two.txt]}\n"})
    await lab.run_podium("trust", str(other.path), "--yes")
    before = lab.repo.tip()

    said = await invoke_podium(lab, "merge", BRANCH, "feat/good", "--yes", "--json", "--check", "test ! -f two.txt")

    fields = json.loads(said.stdout)
    assert said.exit_code == 1, said.stderr
    assert [(one["branch"], one["reason"]) for one in fields["left_out"]] == [(BRANCH, "together")]
    assert f"it cannot be merged in {other.path}: check: " in fields["left_out"][0]["why"]
    assert [one["branch"] for one in fields["also"][0]["coupled"]] == ["feat/good"]
    assert lab.repo.tip() != before
    assert (other.path / "good.txt").exists()
    assert not (other.path / "two.txt").exists()
    assert not (lab.repo.path / "one-two.txt").exists()
    assert list_integration_branches(lab.repo, other) == ["", ""]


async def test_a_conflict_in_one_repository_or_a_checkout_with_changes_moves_no_target(
    lab: WorkerLab, other: Repo
) -> None:
    await work_in_both(lab, other)
    (other.path / "a.txt").write_text(LINES + "mine\n")
    before = tips(lab.repo, other)

    dirty = await invoke_podium(lab, "merge", BRANCH, "--yes")
    other.git("checkout", "-q", "a.txt")
    other.commit({"two.txt": "another two\n"})
    conflict = await invoke_podium(lab, "merge", BRANCH, "--yes")

    assert dirty.exit_code == 2
    assert f"no target was moved: in {other.path}, main is checked out in {other.path}" in dirty.stderr
    assert conflict.exit_code == 6
    assert "left out: feat/both: together: it cannot be merged in " in conflict.stdout
    assert "left out: feat/both: conflict: " in conflict.stdout
    assert lab.repo.tip() == before[0]


async def test_a_branch_that_is_checked_out_in_the_other_repository_is_not_merged_into_itself(
    lab: WorkerLab, other: Repo
) -> None:
    await work_in_both(lab, other)
    other.git("checkout", "-q", "--ignore-other-worktrees", BRANCH)

    refused = await invoke_podium(lab, "merge", BRANCH, "--yes")

    assert refused.exit_code == 2
    assert refused.stderr.endswith(
        f"podium: {BRANCH} cannot be merged into itself in {other.path}; "
        "check out another branch there, or pass --onto\n"
    )


@pytest.mark.parametrize(
    "option",
    [
        "--resolve",
        pytest.param("--pull-request", marks=pytest.mark.slow),
        pytest.param("--only=two.txt", marks=pytest.mark.slow),
    ],
)
async def test_options_for_one_repository_are_refused(
    lab: WorkerLab, other: Repo, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lab.folder / "bin").mkdir()
    (lab.folder / "bin" / "gh").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", f"{lab.folder}/bin:{os.environ['PATH']}")
    lab.repo.git("remote", "add", "origin", "https://github.com/team/shop.git")
    await work_in_both(lab, other)

    said = await invoke_podium(lab, "merge", BRANCH, option, "--yes")

    assert said.exit_code == 2
    assert f"{BRANCH} also has changes in other" in said.stderr


async def test_a_merge_that_is_killed_between_two_targets_is_completed_by_the_next_merge(
    lab: WorkerLab, other: Repo
) -> None:
    await work_in_both(lab, other)
    before = tips(lab.repo, other)

    died = await lab.run_podium("merge", BRANCH, "--yes", PODIUM_FAULT="2")
    assert died.returncode == 137
    assert [new == old for new, old in zip(tips(lab.repo, other), before, strict=True)] == [False, True]
    said = await lab.run_podium("merge", "--all", "--yes")

    assert said.returncode == 0, said.stderr
    assert f"main in {lab.root} and main in {other.path}" in said.stderr
    assert (other.path / "two.txt").read_text() == "two\n"
    assert [repo.git("status", "--short") for repo in (lab.repo, other)] == ["", ""]


async def test_lists_and_reports_show_the_work_in_each_repository(lab: WorkerLab, other: Repo) -> None:
    run = await work_in_both(lab, other)
    there = lab.folder / "other-worker-feat-both"

    said = {
        " ".join(words): (await invoke_podium(lab, *words)).stdout
        for words in (
            ("workers",),
            ("workers", "status", BRANCH),
            ("workers", "diff", BRANCH),
            ("workers", "diff", BRANCH, "--stat"),
            ("worktrees",),
            ("logs", run),
            ("results", run),
            ("show", run),
        )
    }
    fields = json.loads((await invoke_podium(lab, "workers", "--json")).stdout)["workers"][0]

    assert f"{BRANCH} + other" in said["workers"]
    assert "+2 -0" in said["workers"]
    assert f"also in:  {there}, from {other.tip()[:12]}" in said[f"workers status {BRANCH}"]
    assert "+2 -0 in 2 files, 2 commits" in said[f"workers status {BRANCH}"]
    assert f"also in  {there}\n" in said[f"show {run}"]
    assert f"\nin {other.path}:\ndiff --git a/two.txt b/two.txt" in said[f"workers diff {BRANCH}"]
    assert f"in {other.path}:\n two.txt | 1 +" in said[f"workers diff {BRANCH} --stat"]
    assert f"{BRANCH}: also in {there}" in said["worktrees"]
    assert f"; also in {there}, from " in said[f"logs {run}"]
    assert [(one["root"], one["files"]) for one in fields["also"]] == [(str(other.path), ["two.txt"])]


@pytest.mark.slow
async def test_cleanup_removes_the_worktrees_in_all_repositories_once_they_are_merged(
    lab: WorkerLab, other: Repo
) -> None:
    await work_in_both(lab, other)
    trees = [lab.folder / f"{name}-worker-feat-both" for name in ("repo", "other")]

    early = await invoke_podium(lab, "worktrees", "cleanup")
    kept = [tree.exists() for tree in trees]
    await invoke_podium(lab, "merge", BRANCH, "--yes")
    late = await invoke_podium(lab, "workers", "cleanup")

    assert [line.split(":")[0] for line in early.stdout.splitlines()] == ["kept", "kept"]
    assert kept == [True, True]
    assert [line.split(":")[0] for line in late.stdout.splitlines()] == ["removed", "removed"]
    assert [tree.exists() for tree in trees] == [False, False]
