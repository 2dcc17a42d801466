"""Fast-forwarding: the target moves to exactly what was approved, and none of the person's work gets lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from anyio import create_task_group, to_thread

from podium.values.actor import Actor
from podium.values.errors import Mistake
from podium.workspace.git.repository import Repository
from podium.workspace.merging.fast_forward import fast_forward
from podium.workspace.merging.move_note import lock_moves, write_note

from .deadly_git import run_with_deadly_git, strike_at_every_call
from .merging import LINES, Repo, replace_line


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


async def forward_main(repo: Repo, branch: str = "feat", **other: str) -> None:
    commit = repo.tip(branch)
    asked = {"commit": commit, "tree": repo.tree(commit), "old": repo.tip(), **other}
    await fast_forward(
        repo.path, "main", commit=asked["commit"], expected_tree=asked["tree"], expected_old=asked["old"]
    )


async def expect_refusal(repo: Repo, match: str, branch: str = "feat", **other: str) -> None:
    """Check that it is refused with this message, and that nothing has changed."""
    before = repo.visible_state()

    with pytest.raises(Mistake, match=match):
        await forward_main(repo, branch, **other)

    assert repo.visible_state() == before


async def test_the_target_and_its_checkout_move_together(repo: Repo) -> None:
    feat = repo.branch("feat", {"a.txt": replace_line(0, "feat"), "old.txt": None, "sub/new.txt": "1\n"})
    (repo.path / "notes.txt").write_text("mine\n")

    await forward_main(repo)

    assert repo.tip() == feat
    assert repo.git("status", "--porcelain") == "?? notes.txt"
    assert (repo.path / "a.txt").read_text() == replace_line(0, "feat")
    assert not (repo.path / "old.txt").exists()
    assert "podium: fast-forward" in repo.git("reflog", "-1", "main")


async def test_the_reflog_names_who_approved_the_move(repo: Repo) -> None:
    feat = repo.branch("feat", {"new.txt": "1\n"})
    ada = Actor(name="ada\nlovelace", channel="page")

    await fast_forward(repo.path, "main", commit=feat, expected_tree=repo.tree(feat), expected_old=repo.tip(), by=ada)

    assert repo.git("reflog", "-1", "--format=%gs", "main") == "podium: fast-forward by ada lovelace (page)"


async def test_a_target_that_is_checked_out_nowhere_moves_alone(repo: Repo) -> None:
    feat = repo.branch("feat", {"a.txt": replace_line(0, "feat")})
    repo.git("switch", "-q", "-c", "other")
    (repo.path / "a.txt").write_text("unsaved\n")

    await forward_main(repo)

    assert repo.tip() == feat
    assert repo.git("status", "--porcelain") == "M a.txt"
    assert (repo.path / "a.txt").read_text() == "unsaved\n"


async def test_a_target_that_is_checked_out_in_a_worktree_moves_there(repo: Repo, tmp_path: Path) -> None:
    feat = repo.branch("feat", {"a.txt": replace_line(0, "feat")})
    repo.git("switch", "-q", "-c", "other")
    repo.git("worktree", "add", "-q", str(tmp_path / "wt"), "main")

    await forward_main(repo)

    assert repo.tip() == feat
    assert repo.git("status", "--porcelain", at=tmp_path / "wt") == ""
    assert (tmp_path / "wt" / "a.txt").read_text() == replace_line(0, "feat")
    assert (repo.path / "a.txt").read_text() == LINES


async def test_commits_pushed_after_the_review_are_refused(repo: Repo) -> None:
    reviewed = repo.tree(repo.branch("feat", {"a.txt": replace_line(0, "reviewed")}))
    repo.branch("feat", {"a.txt": replace_line(0, "pushed later")}, start="feat")

    await expect_refusal(repo, f"but {reviewed[:12]} was approved; review it again", tree=reviewed)


async def test_a_target_that_moved_meanwhile_is_refused(repo: Repo) -> None:
    repo.branch("feat", {"a.txt": replace_line(0, "feat")})
    old = repo.tip()
    repo.commit({"b.txt": replace_line(0, "meanwhile")})

    await expect_refusal(repo, "main was at .* when the merge began, but is now at .*; merge again", old=old)


async def test_a_commit_that_does_not_build_on_the_target_is_refused(repo: Repo) -> None:
    repo.branch("feat", {"a.txt": replace_line(0, "feat")})
    repo.commit({"b.txt": replace_line(0, "meanwhile")})

    await expect_refusal(repo, "is not based on main")


async def test_a_name_that_is_no_branch_or_commit_is_refused(repo: Repo) -> None:
    feat = repo.branch("feat", {"a.txt": replace_line(0, "feat")})

    with pytest.raises(Mistake, match="branch 'main~0' not found"):
        await fast_forward(repo.path, "main~0", commit=feat, expected_tree=repo.tree(feat), expected_old=repo.tip())
    await expect_refusal(repo, "commit '--all' not found", commit="--all")


async def test_moving_twice_is_moving_once(repo: Repo) -> None:
    feat = repo.branch("feat", {"a.txt": replace_line(0, "feat")})
    old = repo.tip()

    await forward_main(repo, old=old)
    await forward_main(repo, old=old)

    assert repo.tip() == feat


@pytest.mark.parametrize("is_staged", [False, True])
async def test_a_checkout_with_changes_is_refused(repo: Repo, is_staged: bool) -> None:
    repo.branch("feat", {"a.txt": replace_line(0, "feat")})
    (repo.path / "b.txt").write_text("mine\n")
    if is_staged:
        repo.git("add", "b.txt")

    await expect_refusal(
        repo, r"main is checked out in .*, which has uncommitted changes \(b.txt\); commit or stash them"
    )

    assert (repo.path / "b.txt").read_text() == "mine\n"


async def test_a_file_that_was_only_touched_is_no_change(repo: Repo) -> None:
    feat = repo.branch("feat", {"a.txt": replace_line(0, "feat")})
    (repo.path / "a.txt").touch()

    await forward_main(repo)

    assert repo.tip() == feat


@pytest.mark.parametrize("mine", ["new.txt", "new.txt/inside", "sub"])
@pytest.mark.parametrize("is_ignored", [False, True])
async def test_a_file_that_git_does_not_keep_is_not_overwritten(repo: Repo, mine: str, is_ignored: bool) -> None:
    repo.branch("feat", {"new.txt": "theirs\n", "sub/new.txt": "theirs\n"})
    (repo.path / mine).parent.mkdir(exist_ok=True)
    (repo.path / mine).write_text("mine\n")
    if is_ignored:
        (repo.path / ".git" / "info" / "exclude").write_text("new.txt\nsub\n")

    await expect_refusal(repo, "untracked or ignored files are in the way .*; move them elsewhere")

    assert (repo.path / mine).read_text() == "mine\n"


async def test_files_and_folders_of_gits_own_may_change_places(repo: Repo) -> None:
    repo.commit({"dir/inside.txt": "1\n"})
    feat = repo.branch("feat", {"dir/inside.txt": None, "old.txt": None, "old.txt.d": "x\n"})
    feat = repo.branch("feat", {"dir": "a file now\n"}, start="feat")
    (repo.path / ".git" / "info" / "exclude").write_text("ignored\n")

    await forward_main(repo)

    assert repo.tip() == feat
    assert (repo.path / "dir").read_text() == "a file now\n"


async def test_an_ignored_file_in_a_folder_that_becomes_a_file_is_kept(repo: Repo) -> None:
    repo.commit({"dir/inside.txt": "1\n"})
    repo.branch("feat", {"dir/inside.txt": None})
    repo.branch("feat", {"dir": "a file now\n"}, start="feat")
    (repo.path / ".git" / "info" / "exclude").write_text("ignored\n")
    (repo.path / "dir" / "ignored").write_text("mine\n")

    await expect_refusal(repo, "untracked or ignored files are in the way")

    assert (repo.path / "dir" / "ignored").read_text() == "mine\n"


@pytest.mark.parametrize("where", ["main", "feat"])
async def test_files_that_go_through_a_filter_are_left_to_the_persons_git(repo: Repo, where: str) -> None:
    rules = {".gitattributes": "*.bin filter=lfs\n"}
    if where == "main":
        repo.commit(rules)
    repo.branch("feat", {"large.bin": "version\n"} | ({} if where == "main" else rules))

    await expect_refusal(repo, "git filters apply to .*, and Podium does not run filters; .* git merge --ff-only")


async def test_a_merge_under_way_in_the_checkout_is_refused(repo: Repo) -> None:
    repo.branch("feat", {"a.txt": replace_line(0, "feat")})
    repo.branch("mine", {"b.txt": replace_line(0, "mine")})
    repo.git("merge", "-q", "--no-ff", "--no-commit", "mine")

    await expect_refusal(repo, "a merge is in progress in")


async def test_a_target_that_is_being_rebased_is_refused(repo: Repo) -> None:
    repo.branch("feat", {"b.txt": replace_line(0, "feat")})
    repo.git("-c", "sequence.editor=sed -i s/^pick/edit/", "rebase", "-q", "-i", "--root")

    await expect_refusal(repo, "a rebase of main is in progress; finish or abort it")


async def test_a_missing_checkout_is_reported(repo: Repo, tmp_path: Path) -> None:
    repo.branch("feat", {"a.txt": replace_line(0, "feat")})
    repo.git("switch", "-q", "-c", "other")
    repo.git("worktree", "add", "-q", str(tmp_path / "wt"), "main")
    (tmp_path / "wt").rename(tmp_path / "away")

    await expect_refusal(repo, "which does not exist; restore it, or run git worktree prune")


async def test_a_checkout_whose_git_file_leads_elsewhere_is_refused(repo: Repo, tmp_path: Path) -> None:
    repo.branch("feat", {"a.txt": replace_line(0, "feat")})
    repo.git("switch", "-q", "-c", "other")
    repo.git("worktree", "add", "-q", str(tmp_path / "wt"), "main")
    evil = Repo(tmp_path / "evil")
    evil.git("worktree", "add", "-q", "--detach", str(tmp_path / "own"))
    (tmp_path / "wt" / ".git").write_bytes((tmp_path / "own" / ".git").read_bytes())
    (evil.path / ".git" / "worktrees" / "own" / "gitdir").write_text(f"{tmp_path}/wt/.git\n")

    with pytest.raises(Mistake, match="run git worktree repair"):
        await forward_main(repo)


async def test_an_attempt_that_ended_just_before_the_branch_moved_is_completed(repo: Repo) -> None:
    feat = repo.branch("feat", {"a.txt": replace_line(0, "feat"), "new.txt": "1\n"})
    repo.git("read-tree", "-m", "-u", "main", "feat")

    await forward_main(repo)

    assert repo.tip() == feat
    assert repo.git("status", "--porcelain") == ""


async def test_files_go_back_when_the_branch_cannot_be_moved(repo: Repo) -> None:
    repo.branch("feat", {"a.txt": replace_line(0, "feat"), "new.txt": "1\n"})

    with (repo.path / ".git" / "refs" / "heads" / "main.lock").open("x"):
        await expect_refusal(repo, "main could not be moved to .*: .*main.lock")

    assert (repo.path / "a.txt").read_text() == LINES
    assert not (repo.path / "new.txt").exists()


async def test_a_repository_that_was_found_before_is_accepted(repo: Repo) -> None:
    feat = repo.branch("feat", {"a.txt": replace_line(0, "feat")})

    await fast_forward(
        Repository.at(repo.path), "main", commit="feat", expected_tree=repo.tree(feat), expected_old=repo.tip()
    )

    assert repo.tip() == feat


# Two at once, and interrupted


async def test_two_merges_of_one_branch_at_the_same_moment_leave_nothing_undone(repo: Repo) -> None:
    for number in range(5):
        feat = repo.branch("feat", {f"new-{number}.txt": "1\n"})
        old, tree = repo.tip(), repo.tree(feat)
        merges = [
            repo.git("commit-tree", tree, "-p", old, "-p", feat, "-m", f"Merge feat, {side}") for side in ("a", "b")
        ]
        refused: list[str] = []

        async def merge(commit: str, old: str = old, tree: str = tree, refused: list[str] = refused) -> None:
            try:
                await fast_forward(repo.path, "main", commit=commit, expected_tree=tree, expected_old=old)
            except Mistake as error:
                refused.append(str(error))

        async with create_task_group() as group:
            for commit in merges:
                group.start_soon(merge, commit)

        assert repo.tip() in merges
        assert repo.git("status", "--porcelain") == ""
        assert [line for line in refused if "merge again" not in line] == []
        assert len(refused) == 1


async def test_a_branch_that_is_moved_meanwhile_keeps_the_files_of_the_other_move(repo: Repo) -> None:
    repo.branch("feat", {"new.txt": "1\n"})
    other = repo.branch("other", {"other.txt": "1\n"})
    repo.git("config", "core.filesRefLockTimeout", "20000")
    ref = repo.path / ".git" / "refs" / "heads" / "main"
    held = ref.with_name("main.lock").open("x")

    def move_main() -> None:
        with held:
            wait_for_file(repo.path / "new.txt")
            ref.write_text(f"{other}\n")
            Path(held.name).unlink()

    mover = threading.Thread(target=move_main)
    mover.start()
    with pytest.raises(Mistake, match="could not be moved"):
        await forward_main(repo)
    await to_thread.run_sync(mover.join)

    assert repo.tip() == other
    assert repo.git("status", "--porcelain") == ""
    assert (repo.path / "other.txt").exists()
    assert not (repo.path / "new.txt").exists()


def wait_for_file(file: Path) -> None:
    while not file.exists():
        time.sleep(0.0005)


MERGES = """
import anyio, sys
from podium.workspace.merging.fast_forward import fast_forward
path, commit, tree, old = sys.argv[1:]
async def main():
    await fast_forward(__import__("pathlib").Path(path), "main", commit=commit, expected_tree=tree, expected_old=old)
anyio.run(main)
"""


@pytest.mark.parametrize("moment", [1, 400])
async def test_a_move_that_was_killed_while_it_wrote_files_can_be_repeated(repo: Repo, moment: int) -> None:
    names = [f"new/{number:04}.txt" for number in range(800)]
    feat = repo.branch("feat", {**dict.fromkeys(names, LINES * 20), "a.txt": LINES * 3, "old.txt": None})
    script = [sys.executable, "-c", MERGES, str(repo.path), feat, repo.tree(feat), repo.tip()]
    with subprocess.Popen(script, start_new_session=True) as merging:
        await to_thread.run_sync(wait_for_file, repo.path / names[moment])
        os.killpg(merging.pid, signal.SIGKILL)

    await forward_main(repo)

    assert repo.tip() == feat
    assert repo.git("status", "--porcelain") == ""


@pytest.mark.parametrize(
    "struck_call",
    [
        ("update-index", "1"),
        ("read-tree", "2"),
        ("update-ref", "before"),
        ("update-ref", "1"),
        pytest.param(None, marks=pytest.mark.slow),
    ],
)
async def test_a_move_that_was_killed_together_with_git_can_be_repeated(
    repo: Repo, tmp_path: Path, struck_call: tuple[str, str] | None
) -> None:
    feat = repo.branch("feat", {"a.txt": replace_line(0, "feat"), "new/n.txt": LINES * 1000, "old.txt": None})
    repo.git("update-index", "--refresh")
    shutil.copytree(repo.path, tmp_path / "begin")
    argv = [sys.executable, "-c", MERGES, str(repo.path), feat, repo.tree(feat), repo.tip()]
    if struck_call is None:
        strikes = strike_at_every_call(tmp_path / "git", argv, ("before", "after", *map(str, range(1, 8))))
    else:
        strikes = iter([run_with_deadly_git(tmp_path / "git", argv, *struck_call)])

    for struck in strikes:
        async with lock_moves(Repository.at(repo.path)):
            assert repo.git("status", "--porcelain") == "", struck
        await fast_forward(
            repo.path, "main", commit=feat, expected_tree=repo.tree(feat), expected_old=repo.git("rev-parse", "feat^")
        )

        assert struck
        assert repo.tip() == feat, struck
        assert repo.git("status", "--porcelain") == "", struck
        assert list(repo.path.glob(".git/**/*[dnx].lock")) == [], struck
        shutil.rmtree(repo.path)
        shutil.copytree(tmp_path / "begin", repo.path)


async def test_work_that_a_person_began_after_an_interrupted_move_stays(repo: Repo) -> None:
    feat = repo.branch("feat", {"a.txt": replace_line(0, "feat"), "new.txt": "1\n2\n"})
    checkout = Repository.at(repo.path)
    write_note(checkout, "main", repo.tip(), feat)
    (repo.path / "new.txt").write_text("1\n")  # cut off by the interruption
    (repo.path / "b.txt").write_text("mine\n")

    with pytest.raises(Mistake, match="uncommitted changes"):
        await forward_main(repo)

    assert (repo.path / "b.txt").read_text() == "mine\n"
    assert not (repo.path / "new.txt").exists()
    repo.git("checkout", "b.txt")
    await forward_main(repo)
    assert repo.git("status", "--porcelain") == ""


async def test_locks_that_a_killed_git_left_do_not_prevent_a_move(repo: Repo) -> None:
    feat = repo.branch("feat", {"a.txt": replace_line(0, "feat")})
    for name in ("index.lock", "HEAD.lock", "refs/heads/main.lock"):
        (repo.path / ".git" / name).touch()

    await forward_main(repo)

    assert repo.tip() == feat
    assert repo.git("status", "--porcelain") == ""


async def test_a_lock_of_a_git_that_waits_for_an_editor_stays(repo: Repo, tmp_path: Path) -> None:
    repo.branch("feat", {"a.txt": replace_line(0, "feat")})
    os.mkfifo(tmp_path / "editor")
    environ = {**os.environ, "GIT_EDITOR": f"cat {tmp_path}/editor >"}
    argv = ["git", "commit", "--quiet", "--all", "--allow-empty"]
    with subprocess.Popen(argv, cwd=repo.path, env=environ, stderr=subprocess.DEVNULL) as committing:
        with (tmp_path / "editor").open("w") as editor:
            with pytest.raises(Mistake, match=r"index\.lock"):
                await forward_main(repo)
            lock_exists = (repo.path / ".git" / "index.lock").exists()
            editor.write("Mine\n")

    assert lock_exists
    assert committing.returncode == 0
    assert repo.git("log", "-1", "--format=%s") == "Mine"
    assert repo.git("status", "--porcelain") == ""
