"""Worktrees: created beside the repository, listed, and removed without losing anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import pytest

from podium.store.worktree_ledger import Ledger
from podium.testing import make_repository, run_git
from podium.values.errors import Mistake, OutsideFailed
from podium.workspace.git.repository import Checkout, Repository
from podium.workspace.worktrees.cleanup import clean_up_worktrees, list_worktrees
from podium.workspace.worktrees.saved_work import list_saved_work
from podium.workspace.worktrees.worktree import Worktrees
from podium.workspace.worktrees.worktree_folder import resolve_worktree_folder

from .test_repository import repo
from .test_snapshot import git_output

__all__ = ["repo"]


@pytest.fixture
def worktrees(repo: Path, tmp_path: Path) -> Worktrees:
    return Worktrees(repository=Repository.at(repo), ledger=Ledger(tmp_path / "home" / "podium.db"))


def commit(directory: Path, name: str, text: str = "text\n") -> None:
    (directory / name).write_text(text)
    run_git(directory, "add", ".")
    run_git(directory, "commit", "-q", "-m", f"change {name}")


async def read_states(worktrees: Worktrees) -> dict[str, str]:
    return {one.branch: one.state for one in await worktrees.ledger.list_worktrees()}


# Creating


async def test_a_worktree_is_made_beside_the_repository_on_a_new_branch(worktrees: Worktrees, repo: Path) -> None:
    checkout = await worktrees.create("feat/auth", run="r1")

    assert checkout.path == repo.parent / "repo-worker-feat-auth"
    assert (checkout.path / "a.txt").read_text() == "one\n"
    assert git_output(checkout.path, "rev-parse", "--abbrev-ref", "HEAD") == "feat/auth\n"
    assert git_output(checkout.path, "status", "--porcelain") == ""
    assert checkout.base == git_output(repo, "rev-parse", "HEAD").strip()
    [noted] = await worktrees.ledger.list_worktrees()
    assert (noted.path, noted.branch, noted.run, noted.state) == (checkout.path, "feat/auth", "r1", "ready")
    assert noted.size > 0
    assert await worktrees.find_checkout("feat/auth") == checkout


async def test_a_worktree_starts_at_the_given_base_or_on_the_existing_branch(worktrees: Worktrees, repo: Path) -> None:
    first = git_output(repo, "rev-parse", "HEAD").strip()
    run_git(repo, "branch", "old")
    commit(repo, "b.txt")

    behind = await worktrees.create("new", base="old")
    existing = await worktrees.create("old")

    assert behind.base == existing.base == first
    assert not (behind.path / "b.txt").exists()
    assert git_output(existing.path, "rev-parse", "--abbrev-ref", "HEAD") == "old\n"


async def test_the_folder_can_be_elsewhere_but_not_inside(worktrees: Worktrees, repo: Path, tmp_path: Path) -> None:
    elsewhere = replace(worktrees, folder=f"{tmp_path}/trees/{{repo}}/{{branch}}")

    assert (await elsewhere.create("feat/a")).path == tmp_path / "trees" / "repo" / "feat-a"
    (tmp_path / "link").symlink_to(repo)
    for folder, complaint in (
        ("trees/{branch}", "inside the repository"),
        ("../same", "the same folder for every worktree"),
        ("../{branch}/../same", "the same folder for every worktree"),
        ("../{repo}/{branch}", "inside the repository"),
        (f"{repo}/{{branch}}", "inside the repository"),
        ("../{name}-{branch}", r"contains \{name\}, which is not a placeholder; use \{repo\} and \{branch\}"),
        ("../{branch}}", "is not a placeholder"),
        ("~ada/{branch}", "another user's home folder"),
        ("../link/{branch}", "inside the repository"),
        ("../x/.git/{branch}", "in git's own folder"),
        (".git/{branch}", "in git's own folder"),
    ):
        with pytest.raises(Mistake, match=complaint):
            await replace(worktrees, folder=folder).create("feat/b")
    with pytest.raises(Mistake, match="inside the repository"):
        await worktrees.create("feat/b", at=tmp_path / "link" / "feat-b")
    assert await read_states(worktrees) == {"feat/a": "ready"}


async def test_the_home_folder_is_expanded_and_braces_in_names_are_kept(
    worktrees: Worktrees, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))

    path = resolve_worktree_folder("~/{repo}/{branch}", main=worktrees.repository.main_folder, branch="feat/{repo}")

    assert path == tmp_path / "me" / "repo" / "feat-{repo}"


async def test_worktrees_of_all_repositories_keep_out_of_each_others_folders(
    worktrees: Worktrees, repo: Path, tmp_path: Path
) -> None:
    run_git(tmp_path, "clone", "-q", str(repo), "other")
    other = replace(worktrees, repository=Repository.at(tmp_path / "other"), folder="../trees/{branch}")
    first = await replace(worktrees, folder="../trees/{branch}").create("feat")

    second = await other.create("feat")
    with pytest.raises(Mistake, match=r"would be nested"):
        await replace(other, folder="../trees/feat/{branch}").create("deep")

    assert first.path == tmp_path / "trees" / "feat"
    assert re.fullmatch(r"feat-[0-9a-f]{6}", second.path.name)
    assert [one.path for one in await worktrees.ledger.list_worktrees()] == [first.path, second.path]


async def test_branches_with_the_same_folder_name_get_two_folders_and_keep_them(worktrees: Worktrees) -> None:
    first = await worktrees.create("feat/a-b")
    second = await worktrees.create("feat-a/b")
    alone = await worktrees.create("feat-a/c")

    assert first.path.name == "repo-worker-feat-a-b"
    assert re.fullmatch(r"repo-worker-feat-a-b-[0-9a-f]{6}", second.path.name)
    assert alone.path.name == "repo-worker-feat-a-c"
    assert git_output(second.path, "rev-parse", "--abbrev-ref", "HEAD") == "feat-a/b\n"
    await worktrees.remove("feat/a-b")
    assert await worktrees.find_checkout("feat-a/b") == second
    assert (await worktrees.create("feat/a-b")).path == first.path


async def test_the_suffix_of_a_folder_is_the_same_after_a_crash(worktrees: Worktrees) -> None:
    await worktrees.create("feat/a-b")
    folders = set()
    for at in range(1, 5):
        assert crashes_at(worktrees, "create", at, branch="feat-a/b")
        folders |= {one.path.name for one in await worktrees.ledger.list_worktrees() if one.branch == "feat-a/b"}
        await worktrees.reconcile()
        if "feat-a/b" in await read_states(worktrees):
            await worktrees.remove("feat-a/b")

    checkout = await worktrees.create("feat-a/b")

    assert folders == {checkout.path.name}
    assert re.fullmatch(r"repo-worker-feat-a-b-[0-9a-f]{6}", checkout.path.name)


async def test_a_branch_keeps_out_of_the_folder_that_another_store_uses(worktrees: Worktrees, tmp_path: Path) -> None:
    first = await replace(worktrees, ledger=Ledger(tmp_path / "other" / "podium.db")).create("feat/a-b")

    second = await worktrees.create("feat-a/b")

    assert second.path.parent == first.path.parent
    assert re.fullmatch(r"repo-worker-feat-a-b-[0-9a-f]{6}", second.path.name)


async def test_a_folder_is_refused_when_the_one_with_the_suffix_is_taken_too(worktrees: Worktrees) -> None:
    await worktrees.create("feat/a-b")
    suffixed = (await worktrees.create("feat-a/b")).path.name.removeprefix("repo-worker-")
    await worktrees.remove("feat-a/b")
    await worktrees.create(suffixed)

    with pytest.raises(Mistake, match=rf"repo-worker-feat-a-b and .*repo-worker-{suffixed} belong to other worktrees"):
        await worktrees.create("feat-a/b")


async def test_an_existing_worktree_is_found_and_removed_after_the_folder_pattern_has_changed(
    worktrees: Worktrees,
) -> None:
    checkout = await worktrees.create("feat")
    moved = replace(worktrees, folder="../elsewhere/{branch}")

    assert await moved.find_checkout("feat") == checkout
    assert [one.path for one in await list_worktrees(moved)] == [checkout.path]
    await moved.remove("feat")
    assert not checkout.path.exists()


@pytest.mark.parametrize("target", ["there", "nowhere"])
async def test_a_folder_that_is_a_link_is_refused_wherever_it_leads(
    worktrees: Worktrees, repo: Path, tmp_path: Path, target: str
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "repo-worker-feat-a").symlink_to(tmp_path / target)

    with pytest.raises(Mistake, match="exists"):
        await worktrees.create("feat/a")

    assert list((tmp_path / "there").iterdir()) == []
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    "branch",
    [
        *("", "-x", "--upload-pack=x", "a b", "a..b", "a~1", ".git", "a/.git", "x.lock", "/a", "a/", "HEAD", "@"),
        *("a@{1}", "refs/heads/a", "a\nb", "a\u202eb", "a" * 201, "0" * 40, "a//b", "a^", "a:b", "a\\b", "*"),
        *("$(id)", "`id`", "a;id", "a&b", "a|b", "a>b", "a<b", "a'b", 'a"b', "a!b", "a(b)", "{a,b}", "$HOME", "#a"),
    ],
)
async def test_a_bad_name_of_a_branch_is_refused_and_nothing_is_made(
    worktrees: Worktrees, repo: Path, branch: str
) -> None:
    before = git_output(repo, "for-each-ref")

    with pytest.raises(Mistake, match=r"needs a branch name|is not a valid branch name"):
        await worktrees.create(branch)

    assert git_output(repo, "for-each-ref") == before
    assert await worktrees.ledger.list_worktrees() == []
    assert [path.name for path in repo.parent.glob("repo*")] == ["repo"]


@pytest.mark.parametrize(("branch", "character"), [("$(id)", "$"), ("fix;id", ";"), ("feat/`id`", "`")])
async def test_a_branch_name_that_a_shell_would_interpret_is_refused_with_the_character(
    worktrees: Worktrees, branch: str, character: str
) -> None:
    with pytest.raises(Mistake, match=re.escape(f"it contains {character}, which a shell would interpret; use a name")):
        await worktrees.create(branch)


@pytest.mark.parametrize(
    "branch", ["feat/login", "fix/issue-12", "fix/#12", "release-1.2", "a+b", "me@work", "a=b", "a%b"]
)
async def test_ordinary_branch_names_are_accepted(worktrees: Worktrees, branch: str) -> None:
    assert (await worktrees.create(branch)).path.exists()


async def test_obstacles_to_making_a_worktree_are_reported(worktrees: Worktrees, repo: Path, tmp_path: Path) -> None:
    await worktrees.create("feat/a")
    run_git(repo, "worktree", "add", "-q", "-b", "mine", str(tmp_path / "mine"))
    (tmp_path / "repo-worker-taken").mkdir()
    (tmp_path / "repo-worker-link").symlink_to("/nonexistent")

    for branch, complaint in (
        ("feat/a", r"'feat/a' already has a worktree, in .*repo-worker-feat-a"),
        ("main", r"'main' is checked out in .*/repo;"),
        ("mine", r"'mine' is checked out in .*/mine;"),
        ("taken", r"repo-worker-taken exists and is not a Podium worktree"),
        ("link", r"repo-worker-link exists"),
        ("feat", r"cannot store both branches 'feat' and 'feat/a'"),
        ("main/x", r"cannot store both branches 'main/x' and 'main'"),
    ):
        with pytest.raises(Mistake, match=complaint):
            await worktrees.create(branch)
    with pytest.raises(Mistake, match=r"commit 'nowhere' not found"):
        await worktrees.create("other", base="nowhere")
    assert await read_states(worktrees) == {"feat/a": "ready"}


async def test_without_a_repository_or_a_commit_there_is_no_worktree(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    make_repository(tmp_path / "unborn")
    unborn = Worktrees(repository=Repository.at(tmp_path / "unborn"), ledger=Ledger(tmp_path / "podium.db"))

    with pytest.raises(Mistake, match=r"plain is not in a git repository"):
        Repository.at(tmp_path / "plain")
    with pytest.raises(Mistake, match=r"unborn has no commits yet"):
        await unborn.create("feat")


async def test_from_within_a_worktree_another_is_made_beside_the_repository(worktrees: Worktrees, repo: Path) -> None:
    first = await worktrees.create("first")
    (first.path / "deep").mkdir()

    inner = Worktrees(repository=Repository.at(first.path / "deep"), ledger=worktrees.ledger)
    second = await inner.create("second")

    assert second.path == repo.parent / "repo-worker-second"
    assert second.common_dir == repo / ".git"


async def test_listed_ignored_files_go_along_and_nothing_from_behind_a_link(
    worktrees: Worktrees, repo: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    (repo / ".gitignore").write_text(".env\nconf/\n*.link\nbuild/\nout\n")
    (repo / ".worktreeinclude").write_text(".env\nconf/*\n!conf/not\n*.link\nout/\na.txt\nnew.txt\n")
    commit(repo, "b.txt")
    (repo / ".env").write_text("KEY=1")
    (repo / "conf").mkdir()
    for name in ("tool", "not"):
        (repo / "conf" / name).write_text(name)
    (repo / "conf" / "tool").chmod(0o755)
    (repo / "secret.link").symlink_to(tmp_path / "outside" / "secret")
    (repo / "out").symlink_to(tmp_path / "outside")
    (repo / "build").mkdir()
    (repo / "build" / "x").write_text("not wanted")
    (repo / "new.txt").write_text("not ignored")

    checkout = await worktrees.create("feat")

    there = sorted(str(path.relative_to(checkout.path)) for path in checkout.path.rglob("*") if path.is_file())
    assert there == [".env", ".git", ".gitignore", ".worktreeinclude", "a.txt", "b.txt", "conf/tool"]
    assert os.access(checkout.path / "conf" / "tool", os.X_OK)
    assert not list(checkout.path.glob("*link")) + list(checkout.path.glob("out"))


async def test_nothing_is_copied_through_a_link_of_the_worktree(
    worktrees: Worktrees, repo: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (repo / "conf").symlink_to(tmp_path / "outside")
    (repo / ".gitignore").write_text("conf/*\n")
    (repo / ".worktreeinclude").write_text("conf/*\n")
    commit(repo, "b.txt")
    (repo / "conf").unlink()
    (repo / "conf").mkdir()
    (repo / "conf" / "planted").write_text("planted")

    await worktrees.create("feat")

    assert list((tmp_path / "outside").iterdir()) == []


async def test_a_setup_that_fails_leaves_no_worktree(worktrees: Worktrees, repo: Path) -> None:
    seen: list[Path] = []

    async def setup(checkout: Checkout) -> None:
        seen.append(checkout.path)
        (checkout.path / "half done").write_text("by the setup")
        raise OutsideFailed("no network")

    with pytest.raises(OutsideFailed, match="no network"):
        await worktrees.create("feat", setup=setup)

    assert seen == [repo.parent / "repo-worker-feat"]
    assert not seen[0].exists()
    assert await read_states(worktrees) == {}


# Listing


async def test_the_status_of_a_worktree_has_commits_files_and_uncommitted_changes(
    worktrees: Worktrees, repo: Path
) -> None:
    checkout = await worktrees.create("feat")
    commit(repo, "main.txt")
    commit(checkout.path, "b.txt", "1\n2\n3\n")
    (checkout.path / "a.txt").write_text("changed\n")
    (checkout.path / "new.txt").write_text("new\n")

    status = await worktrees.read_status(checkout)

    assert (status.ahead, status.behind, status.unmerged, status.modified, status.untracked) == (1, 1, 1, 1, 1)
    assert [one.subject for one in status.commits] == ["change b.txt"]
    assert {one.path: (one.added, one.removed) for one in status.files} == {"a.txt": (1, 1), "b.txt": (3, 0)}
    assert (status.added, status.removed) == (4, 1)


async def test_the_list_marks_worktrees_that_are_not_ours(worktrees: Worktrees, repo: Path, tmp_path: Path) -> None:
    await worktrees.create("feat")
    run_git(repo, "worktree", "add", "-q", "-b", "mine", str(tmp_path / "mine"))

    found = await list_worktrees(worktrees)

    assert [(one.branch, one.state, one.is_ours) for one in found] == [
        ("feat", "ready", True),
        ("mine", "foreign", False),
    ]
    assert (found[0].status is not None, found[1].status) == (True, None)


# Removing


async def test_a_clean_worktree_is_removed_and_its_branch_stays(worktrees: Worktrees, repo: Path) -> None:
    checkout = await worktrees.create("feat")
    torn_down: list[bool] = []

    async def teardown(one: Checkout) -> None:
        torn_down.append(one.path.exists())

    removed = await replace(worktrees, teardown=teardown).remove("feat")

    assert str(removed) == f"removed {checkout.path}; the branch feat remains"
    assert torn_down == [True]
    assert [path.name for path in repo.parent.iterdir() if "repo" in path.name] == ["repo"]
    assert git_output(repo, "worktree", "list").count("\n") == 1
    assert "refs/heads/feat" in git_output(repo, "for-each-ref")
    assert await read_states(worktrees) == {}
    assert (await worktrees.create("feat")).path == checkout.path


async def test_work_that_is_not_committed_or_not_merged_is_not_removed(worktrees: Worktrees, repo: Path) -> None:
    checkout = await worktrees.create("feat")
    (checkout.path / "new.txt").write_text("work\n")

    with pytest.raises(Mistake, match=r"has 1 untracked file; .* --force"):
        await worktrees.remove("feat")
    commit(checkout.path, "new.txt", "work\n")
    with pytest.raises(Mistake, match=r"has 1 unmerged commit"):
        await worktrees.remove("feat")
    (checkout.path / "new.txt").write_text("more work\n")
    with pytest.raises(Mistake, match=r"1 uncommitted changed file and 1 unmerged commit"):
        await worktrees.remove("feat")
    assert (checkout.path / "new.txt").read_text() == "more work\n"

    run_git(checkout.path, "checkout", "-q", ".")
    run_git(repo, "merge", "-q", "feat")
    await worktrees.remove("feat")
    assert not checkout.path.exists()


async def test_forced_removal_saves_everything_and_says_how_to_get_it_back(worktrees: Worktrees, repo: Path) -> None:
    checkout = await worktrees.create("feat/a")
    commit(checkout.path, "committed.txt")
    (checkout.path / "a.txt").write_text("changed\n")
    (checkout.path / "staged.txt").write_text("staged\n")
    run_git(checkout.path, "add", "staged.txt")
    (checkout.path / "new.txt").write_text("new\n")

    removed = await worktrees.remove("feat/a", force=True)

    assert removed.saved is not None
    assert removed.saved.ref.startswith("refs/podium/saved/feat/a/")
    assert await list_saved_work(repo) == [removed.saved]
    assert not checkout.path.exists()
    command = str(removed).partition("saved, and ")[2].partition(" restores it")[0]
    subprocess.run(command.split(), cwd=repo, check=True, capture_output=True)
    assert (repo / "a.txt").read_text() == "changed\n"
    assert [(repo / name).exists() for name in ("committed.txt", "staged.txt", "new.txt")] == [True] * 3
    assert "change committed.txt" in git_output(repo, "log", "--format=%s")


async def test_commits_on_no_branch_are_saved_too(worktrees: Worktrees, repo: Path) -> None:
    checkout = await worktrees.create("feat")
    run_git(checkout.path, "checkout", "-q", "--detach")
    commit(checkout.path, "alone.txt")
    alone = git_output(checkout.path, "rev-parse", "HEAD").strip()
    subprocess.run(["rm", "-r", checkout.path], check=True)

    removed = await worktrees.remove("feat")

    assert removed.saved is not None
    assert removed.saved.commit == alone


async def test_nested_repositories_locked_worktrees_and_those_that_are_not_ours_are_kept(
    worktrees: Worktrees, repo: Path, tmp_path: Path
) -> None:
    checkout = await worktrees.create("feat")
    make_repository(checkout.path / "inner")
    (checkout.path / "inner" / "work").write_text("of its own")
    locked = await worktrees.create("locked")
    run_git(repo, "worktree", "lock", str(locked.path))
    run_git(repo, "worktree", "add", "-q", "-b", "mine", str(tmp_path / "mine"))

    for branch, complaint in (
        ("feat", r"inner is a nested repository, which cannot be saved"),
        ("locked", r"is locked; unlock it with git worktree unlock"),
        ("mine", r"was not created by Podium"),
        ("other", r"no worktree for the branch 'other'; available: feat, locked"),
    ):
        with pytest.raises(Mistake, match=complaint):
            await worktrees.remove(branch, force=True)
    assert (checkout.path / "inner" / "work").exists()
    assert await read_states(worktrees) == {"feat": "ready", "locked": "ready"}


async def test_removal_follows_no_link_out(worktrees: Worktrees, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").write_text("kept")
    checkout = await worktrees.create("feat")
    (checkout.path / "out").symlink_to(tmp_path / "outside")
    closed = checkout.path / "closed"
    closed.mkdir()
    (closed / "file").write_text("x")
    closed.chmod(0o555)

    await worktrees.remove("feat", force=True)

    assert (tmp_path / "outside" / "kept").read_text() == "kept"
    assert not checkout.path.exists()


async def test_work_written_during_teardown_is_not_lost(worktrees: Worktrees) -> None:
    checkout = await worktrees.create("feat")

    async def teardown(one: Checkout) -> None:
        (one.path / "late.txt").write_text("late\n")

    with pytest.raises(Mistake, match=r"1 untracked file"):
        await replace(worktrees, teardown=teardown).remove("feat")

    assert (checkout.path / "late.txt").read_text() == "late\n"
    assert await read_states(worktrees) == {"feat": "ready"}


# Cleaning up


async def test_cleanup_reports_every_worktree_and_removes_only_what_is_not_needed(
    worktrees: Worktrees, repo: Path, tmp_path: Path
) -> None:
    clean = await worktrees.create("clean")
    dirty = await worktrees.create("dirty")
    (dirty.path / "new.txt").write_text("work\n")
    busy = await worktrees.create("busy", run="r1")
    missing = await worktrees.create("missing")
    subprocess.run(["rm", "-r", missing.path], check=True)
    run_git(repo, "worktree", "add", "-q", "-b", "mine", str(tmp_path / "mine"))

    tried = await clean_up_worktrees(worktrees, busy=lambda: ["r1"], dry_run=True)
    assert clean.path.exists()
    done = await clean_up_worktrees(worktrees, busy=lambda: ["r1"])

    assert done == tried
    assert [(line.branch, line.act, line.why) for line in done] == [
        ("clean", "removed", "everything is committed and merged"),
        ("dirty", "kept", "it has 1 untracked file"),
        ("busy", "kept", "its run r1 has not ended"),
        ("missing", "removed", "its folder no longer exists"),
        ("mine", "left", "not created by Podium"),
    ]
    assert [one.path.exists() for one in (clean, dirty, busy)] == [False, True, True]
    assert (tmp_path / "mine").exists()
    assert await read_states(worktrees) == {"dirty": "ready", "busy": "ready"}


async def test_cleanup_keeps_the_worktree_of_a_worker_that_is_delegated_meanwhile(worktrees: Worktrees) -> None:
    checkout = await worktrees.create("feat", run="r1")
    busy_runs: list[str] = []

    async with anyio.create_task_group() as group:
        async with worktrees.ledger.hold_worktree_lock():
            group.start_soon(partial(clean_up_worktrees, worktrees, busy=lambda: busy_runs))
            await anyio.wait_all_tasks_blocked()
            busy_runs.append("r1")

    assert checkout.path.exists()


async def test_forced_cleanup_saves_first(worktrees: Worktrees, repo: Path) -> None:
    dirty = await worktrees.create("dirty")
    (dirty.path / "new.txt").write_text("work\n")

    [line] = await clean_up_worktrees(worktrees, force=True)

    [saved] = await list_saved_work(repo)
    assert (line.act, saved.ref in line.why) == ("removed", True)
    assert git_output(repo, "show", f"{saved.ref}:new.txt") == "work\n"


# Crashes

CRASHING_PROGRAM = """
import anyio, os, sys
from pathlib import Path
from podium.store.worktree_ledger import Ledger
from podium.workspace.git.repository import Repository
from podium.workspace.worktrees.worktree import Worktrees

class Mortal(Ledger):
    left = int(sys.argv[4])
    def die(self):
        self.left -= 1
        if self.left == 0:
            os._exit(9)
    async def record_new(self, *args, **options):
        self.die()
        noted = await super().record_new(*args, **options)
        self.die()
        return noted
    async def record_state(self, *args, **options):
        self.die()
        noted = await super().record_state(*args, **options)
        self.die()
        return noted

home = Worktrees(repository=Repository.at(Path(sys.argv[1])), ledger=Mortal(Path(sys.argv[2])))
anyio.run(home.create if sys.argv[3] == "create" else lambda branch: home.remove(branch, force=True), sys.argv[5])
"""


def crashes_at(worktrees: Worktrees, operation: str, at: int, *, branch: str = "feat") -> bool:
    """Create or remove a worktree in a process that crashes at a given point."""
    argv = [
        sys.executable,
        "-c",
        CRASHING_PROGRAM,
        str(worktrees.repository.root),
        str(worktrees.ledger.store),
        operation,
        str(at),
        branch,
    ]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode in (0, 9), done.stderr
    return done.returncode == 9


async def test_a_crash_at_any_point_of_making_a_worktree_leaves_nothing_unrecorded(
    worktrees: Worktrees, repo: Path
) -> None:
    refs = git_output(repo, "for-each-ref")
    for at in range(1, 5):
        assert crashes_at(worktrees, "create", at)
        was_ready = await read_states(worktrees) == {"feat": "ready"}
        await worktrees.reconcile()

        if was_ready:
            await worktrees.remove("feat")
            run_git(repo, "branch", "-D", "feat")
        assert await read_states(worktrees) == {}
        assert git_output(repo, "for-each-ref") == refs
        assert git_output(repo, "worktree", "list").count("\n") == 1
        assert [path.name for path in repo.parent.iterdir() if "repo" in path.name] == ["repo"]
    assert not crashes_at(worktrees, "create", 5)


async def test_a_crash_at_any_point_of_removing_a_worktree_loses_no_work(worktrees: Worktrees, repo: Path) -> None:
    checkout = await worktrees.create("feat")
    (checkout.path / "new.txt").write_text("work\n")
    for at in range(1, 5):
        assert crashes_at(worktrees, "remove", at)
        await worktrees.reconcile()

        if checkout.path.exists():
            assert (checkout.path / "new.txt").read_text() == "work\n"
            assert await read_states(worktrees) == {"feat": "ready"}
        else:
            [*_, saved] = await list_saved_work(repo)
            assert git_output(repo, "show", f"{saved.ref}:new.txt") == "work\n"
            assert await read_states(worktrees) == {}
            checkout = await worktrees.create("feat")
            (checkout.path / "new.txt").write_text("work\n")
        assert [path.name for path in repo.parent.glob(".repo*")] == []


async def test_a_worktree_that_was_moved_aside_when_the_process_died_comes_back(worktrees: Worktrees) -> None:
    checkout = await worktrees.create("feat")
    (checkout.path / "new.txt").write_text("work\n")
    [noted] = await worktrees.ledger.list_worktrees()
    await worktrees.ledger.record_state(noted, state="removing")
    checkout.path.rename(checkout.path.with_name(".repo-worker-feat.removing"))

    [repair] = await worktrees.reconcile()

    assert repair.what == "was restored, because its removal was interrupted"
    assert (checkout.path / "new.txt").read_text() == "work\n"


async def test_a_worktree_that_git_made_without_files_is_replaced(worktrees: Worktrees, repo: Path) -> None:
    head = git_output(repo, "rev-parse", "HEAD").strip()
    path = repo.parent / "repo-worker-feat"
    await worktrees.ledger.record_new(path, repository=repo / ".git", branch="feat", base=head, is_new_branch=True)
    run_git(repo, "worktree", "add", "-q", "--no-checkout", "-b", "feat", str(path))

    checkout = await worktrees.create("feat")

    assert (checkout.path / "a.txt").exists()
    assert await list_saved_work(repo) == []


async def test_cancelling_the_making_leaves_nothing(worktrees: Worktrees, repo: Path) -> None:
    with anyio.CancelScope() as scope:

        async def setup(_: Checkout) -> None:
            scope.cancel()
            await anyio.sleep_forever()

        await worktrees.create("feat", setup=setup)

    assert await read_states(worktrees) == {}
    assert git_output(repo, "worktree", "list").count("\n") == 1


async def test_of_concurrent_requests_for_one_branch_one_gets_a_worktree(worktrees: Worktrees) -> None:
    outcomes: list[str] = []

    async def make() -> None:
        try:
            outcomes.append((await worktrees.create("feat")).branch)
        except Mistake as mistake:
            outcomes.append(str(mistake))

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(make)

    assert outcomes.count("feat") == 1
    assert sum("already has a worktree" in one for one in outcomes) == 2


async def test_a_worktree_that_somebody_else_removed_is_forgotten(worktrees: Worktrees, repo: Path) -> None:
    checkout = await worktrees.create("feat")
    run_git(repo, "worktree", "remove", str(checkout.path))

    [repair] = await worktrees.reconcile()

    assert repair.what == "was removed by someone else"
    assert await worktrees.ledger.list_worktrees() == []


async def test_nothing_is_repaired_while_git_still_runs_for_a_killed_process(worktrees: Worktrees, repo: Path) -> None:
    os.mkfifo(repo / "pipe")
    code = f"""
import anyio
from pathlib import Path
from podium.store.worktree_ledger import Ledger
from podium.workspace.git.repository import Repository, call_git
async def main():
    async with Ledger(Path({str(worktrees.ledger.store)!r})).hold_worktree_lock() as lock:
        await call_git(Repository.at(Path({str(repo)!r})), "hash-object", "pipe", lock=lock)
anyio.run(main)
"""
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        # Opening it for writing waits until git reads from it.
        with (repo / "pipe").open("wb"):
            process.kill()
            process.wait()
            with anyio.move_on_after(0.2) as scope:
                await worktrees.reconcile()

    assert scope.cancelled_caught
    assert await worktrees.reconcile() == []


# After a power failure


async def test_a_worktree_whose_git_files_are_empty_is_repaired(worktrees: Worktrees, repo: Path) -> None:
    checkout = await worktrees.create("feat")
    (checkout.path / "new.txt").write_text("work\n")
    for file in (
        *(checkout.git_dir / name for name in ("HEAD", "gitdir", "commondir", "index")),
        checkout.path / ".git",
    ):
        file.write_bytes(b"")

    [repair] = await worktrees.reconcile()

    assert repair.what == "had lost what git knows about it, and has been repaired"
    assert git_output(checkout.path, "status", "--porcelain") == "?? new.txt\n"
    assert git_output(checkout.path, "branch", "--show-current") == "feat\n"
    assert await worktrees.reconcile() == []


async def test_a_worktree_whose_creation_was_cut_off_by_a_power_failure_can_be_created_again(
    worktrees: Worktrees, repo: Path
) -> None:
    assert crashes_at(worktrees, "create", 3)
    [noted] = await worktrees.ledger.list_worktrees()
    [own] = (repo / ".git" / "worktrees").iterdir()
    for file in (own / "gitdir", own / "HEAD", noted.path / ".git"):
        file.write_bytes(b"")

    checkout = await worktrees.create("feat")

    assert git_output(checkout.path, "status", "--porcelain") == ""
    assert [path.name for path in (repo / ".git" / "worktrees").iterdir()] == [own.name]
