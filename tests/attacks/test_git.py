"""Attacks through git: Podium never executes what a worker leaves in a checkout or in a git directory."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from podium.store.worktree_ledger import Ledger
from podium.values.errors import Mistake, OutsideFailed
from podium.workspace.git.branch import advance_branch
from podium.workspace.git.repository import Checkout, Repository, call_git, read_git_output
from podium.workspace.git.snapshot import take_snapshot, temporary_checkout, write_commit
from podium.workspace.worktrees.cleanup import clean_up_worktrees, list_worktrees
from podium.workspace.worktrees.worktree import Worktrees

from ..workspace.sandboxed import Place
from ..workspace.test_repository import canary

__all__ = ["canary"]

WHO = ("-c", "user.name=T", "-c", "user.email=t@example.com")


def run_git_as_person(directory: Path, *args: str) -> str:
    """Run git as a person does, with the repository's whole configuration in effect."""
    done = subprocess.run(["git", *WHO, *args], cwd=directory, capture_output=True, text=True, timeout=30)
    return done.stdout


def has_run(canary: Path) -> bool:
    """Return whether the canary has run since the last check."""
    trace = canary.parent / "trace"
    found = trace.exists()
    trace.unlink(missing_ok=True)
    return found


@pytest.fixture
def worktrees(repo: Path, tmp_path: Path) -> Worktrees:
    return Worktrees(repository=Repository.at(repo), ledger=Ledger(tmp_path / "home" / "podium.db"))


async def run_every_git_call(worktrees: Worktrees, checkout: Checkout) -> None:
    """Make every git call that Podium makes for a worktree."""
    (checkout.path / "a.txt").write_text("the work of a worker\n")
    (checkout.path / "new.txt").write_text("new\n")
    await worktrees.read_status(checkout)
    await list_worktrees(worktrees)
    await call_git(checkout, "diff", "HEAD")
    await call_git(checkout, "log", "-p", "--show-signature", "--format=%G? %s")
    await call_git(checkout, "show", "HEAD")
    taken = await take_snapshot(checkout)
    await call_git(checkout, "merge-tree", "--write-tree", "main", taken)
    async with temporary_checkout(worktrees.repository, taken) as tried:
        await worktrees.read_status(tried)
    await clean_up_worktrees(worktrees, force=True)


def hostile_settings(canary: Path) -> str:
    return f"""
[core]
    fsmonitor = {canary}
    pager = {canary}
    editor = {canary}
    sshCommand = {canary}
    askPass = {canary}
    alternateRefsCommand = {canary}
    gitProxy = {canary}
    hooksPath = {canary.parent}/hooks
[filter "x"]
    clean = {canary}
    smudge = {canary}
    required = true
[diff]
    external = {canary}
    submodule = diff
[diff "x"]
    textconv = {canary}
    command = {canary}
[merge "x"]
    driver = {canary} %A
"""


def plant_hooks(folder: Path, canary: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name in ("post-checkout", "post-index-change", "pre-commit", "reference-transaction", "post-commit"):
        (folder / name).symlink_to(canary)


def make_hostile_git_dir(place: Path, canary: Path) -> Path:
    """Make a complete git directory in which every hook and setting runs the canary."""
    place.mkdir(parents=True)
    run_git_as_person(place, "init", "-q", "--bare", ".")
    (place / "config").write_text("[core]\n    repositoryformatversion = 0\n" + hostile_settings(canary))
    return place


# G1


async def test_a_git_file_that_a_worker_rewrote_is_not_followed(
    worktrees: Worktrees, repo: Path, tmp_path: Path, canary: Path
) -> None:
    checkout = await worktrees.create("feat")
    evil = make_hostile_git_dir(tmp_path / "evil", canary)
    (checkout.path / ".git").write_text(f"gitdir: {evil}\n")
    run_git_as_person(checkout.path, "status")
    assert has_run(canary)

    status = await worktrees.read_status(checkout)
    await run_every_git_call(worktrees, checkout)

    assert (status.ahead, status.modified) == (0, 0)
    assert not has_run(canary)
    assert not checkout.path.exists()


def turn_checkout_into_worktree(place: Place) -> Path:
    """Make the sandbox's checkout a worktree of a repository beside it, and return that repository's git directory."""
    main, worktree = place.folder / "main", place.folder / "worktree"
    place.git("worktree", "add", "-q", "-b", "work", str(worktree))
    place.repo.rename(main)
    worktree.rename(place.repo)
    place.git("-C", str(main), "worktree", "repair", str(place.repo))
    return main / ".git"


def test_a_worker_cannot_write_any_of_gits_own_files(place: Place) -> None:
    common = turn_checkout_into_worktree(place)
    own = common / "worktrees" / "worktree"
    before = {path: path.read_bytes() for path in sorted(common.rglob("*")) if path.is_file()}
    pointer = (place.repo / ".git").read_text()

    targets = [place.repo / ".git", common / "config", common / "hooks" / "post-checkout", own / "commondir"]
    targets += [own / "config.worktree", common / "refs" / "heads" / "main", common / "packed-refs", own / "index"]
    tries = 'for one; do echo x >"$one"; mv "$one" "$one.old"; ln -sf /tmp "$one"; rm -f "$one"; done'
    said = place.bash(tries, *map(str, targets))
    place.bash("git update-ref refs/heads/main work~0; git config core.fsmonitor /bin/true; git worktree prune")

    for target in targets:
        assert f"{target}: Read-only file system" in said.text

    assert {path: path.read_bytes() for path in sorted(common.rglob("*")) if path.is_file()} == before
    assert (place.repo / ".git").read_text() == pointer


# G2


async def test_a_hook_in_the_repository_does_not_run(worktrees: Worktrees, repo: Path, canary: Path) -> None:
    plant_hooks(repo / ".git" / "hooks", canary)
    run_git_as_person(repo, "worktree", "add", "-q", "-b", "by-hand", str(repo.parent / "by hand"))
    assert has_run(canary)

    await run_every_git_call(worktrees, await worktrees.create("feat"))

    assert not has_run(canary)


# G3


async def test_no_setting_of_the_repository_makes_us_run_something(
    worktrees: Worktrees, repo: Path, canary: Path
) -> None:
    checkout = await worktrees.create("feat")
    plant_hooks(canary.parent / "hooks", canary)
    with (repo / ".git" / "config").open("a") as config:
        config.write(hostile_settings(canary))
    attributes = "*.txt filter=x diff=x merge=x\n"
    for folder in (repo, checkout.path):
        (folder / ".gitattributes").write_text(attributes)
    (checkout.path / "a.txt").write_text("two\n")
    run_git_as_person(checkout.path, "diff", "--stat")
    assert has_run(canary)

    await run_every_git_call(worktrees, checkout)
    await worktrees.create("second")

    assert not has_run(canary)


SETTINGS = (
    *("filter.x.clean", "filter.x.smudge", "filter.x.process", "diff.x.textconv", "diff.x.command"),
    *("diff.external", "core.pager", "pager.status", "merge.x.driver", "gpg.program", "gpg.ssh.program"),
    *("core.sshCommand", "core.gitProxy", "core.askPass", "core.editor", "sequence.editor", "credential.helper"),
    *("core.alternateRefsCommand", "uploadpack.packObjectsHook", "remote.origin.uploadpack", "tar.x.command"),
    *("hook.x.command", "trailer.x.command", "gc.recentObjectsHook", "interactive.diffFilter", "core.fsmonitor"),
    *("submodule.s.update", "alias.status", "alias.worktree", "alias.diff"),
)


@pytest.mark.parametrize(
    ("where", "settings"),
    [
        *(pytest.param("config", (setting,), id=setting, marks=pytest.mark.slow) for setting in SETTINGS),
        *(pytest.param(where, SETTINGS, id=where) for where in ("config", "include", "includeIf", "worktree")),
    ],
)
async def test_a_git_setting_that_names_a_command_is_ignored_wherever_it_is_set(
    worktrees: Worktrees, repo: Path, tmp_path: Path, canary: Path, where: str, settings: tuple[str, ...]
) -> None:
    (repo / ".gitattributes").write_text("*.txt filter=x diff=x merge=x\n")
    for branch, text in (("left", "1\n"), ("right", "2\n")):
        run_git_as_person(repo, "checkout", "-q", "-b", branch, "main")
        (repo / "a.txt").write_text(text)
        run_git_as_person(repo, "add", ".")
        run_git_as_person(repo, "commit", "-q", "-m", branch)
    checkout = await worktrees.create("feat")
    files = {"config": repo / ".git" / "config", "worktree": checkout.git_dir / "config.worktree"}
    file = files.get(where, tmp_path / "included")
    for setting in settings:
        command = f"!{canary}" if setting.startswith(("alias", "submodule")) else str(canary)
        run_git_as_person(repo, "config", "--file", str(file), setting, command)
    run_git_as_person(repo, "config", "--file", str(file), "hook.x.event", "post-checkout")
    if where == "worktree":
        run_git_as_person(repo, "config", "extensions.worktreeConfig", "true")
    elif where == "include":
        run_git_as_person(repo, "config", "include.path", str(file))
    elif where == "includeIf":
        # Applies only in worktrees and only on that branch.
        run_git_as_person(repo, "config", "includeIf.onbranch:feat.path", str(file))
        run_git_as_person(repo, "config", "includeIf.gitdir:**/worktrees/**.path", str(file))
    has_run(canary)

    (checkout.path / "a.txt").write_text("two\n")
    await worktrees.read_status(checkout)
    diff = await call_git(checkout, "diff")
    taken = await take_snapshot(checkout)
    await call_git(checkout, "merge-tree", "--write-tree", "left", "right")
    await call_git(checkout, "archive", "--format=x", "HEAD")
    async with temporary_checkout(checkout, taken) as tried:
        text = (tried.path / "a.txt").read_text()
    await worktrees.remove("feat", force=True)

    assert b"+two" in diff.out
    assert text == "two\n"
    assert not has_run(canary)


async def test_no_git_is_started_in_a_submodule_that_a_worker_replaced(
    worktrees: Worktrees, repo: Path, tmp_path: Path, canary: Path
) -> None:
    run_git_as_person(tmp_path, "clone", "-q", str(repo), str(tmp_path / "library"))
    run_git_as_person(
        repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(tmp_path / "library"), "sub"
    )
    run_git_as_person(repo, "commit", "-q", "-m", "a submodule")
    checkout = await worktrees.create("feat")
    # The worker turns the empty folder into a separate repository with its own configuration.
    run_git_as_person(checkout.path, "clone", "-q", str(tmp_path / "library"), "sub")
    (checkout.path / "sub" / ".git" / "info" / "attributes").write_text("*.txt filter=x\n")
    run_git_as_person(checkout.path / "sub", "config", "filter.x.clean", str(canary))
    run_git_as_person(checkout.path / "sub", "config", "core.fsmonitor", str(canary))
    (checkout.path / "sub" / "a.txt").write_text("two\n")
    (checkout.path / ".gitmodules").write_text(
        f'[submodule "sub"]\n\tpath = sub\n\turl = {tmp_path}\n\tignore = none\n'
    )
    run_git_as_person(repo, "config", "status.submoduleSummary", "true")
    run_git_as_person(repo, "config", "diff.submodule", "diff")
    run_git_as_person(checkout.path, "status")
    assert has_run(canary)

    await run_every_git_call(worktrees, checkout)

    assert not has_run(canary)


# G4


async def test_a_common_folder_that_a_worker_names_is_not_used(
    worktrees: Worktrees, repo: Path, tmp_path: Path, canary: Path
) -> None:
    checkout = await worktrees.create("feat")
    (checkout.path / ".gitattributes").write_text("*.txt filter=x diff=x\n")
    evil = make_hostile_git_dir(tmp_path / "evil", canary)
    (checkout.git_dir / "commondir").write_text(f"{evil}\n")
    (checkout.path / "a.txt").write_text("two\n")
    run_git_as_person(checkout.path, "status")
    assert has_run(canary)

    for call in (worktrees.read_status(checkout), take_snapshot(checkout), worktrees.remove("feat", force=True)):
        with pytest.raises(OutsideFailed, match=r"commondir points to .*evil"):
            await call
    (checkout.git_dir / "commondir").write_text("../..\n")
    await run_every_git_call(worktrees, checkout)

    assert not has_run(canary)


async def test_a_repository_that_names_another_as_its_common_folder_is_not_used(
    worktrees: Worktrees, repo: Path, tmp_path: Path, canary: Path
) -> None:
    evil = make_hostile_git_dir(tmp_path / "evil", canary)
    (repo / ".git" / "commondir").write_text(f"{evil}\n")

    with pytest.raises(OutsideFailed, match=r"commondir points to .*evil"):
        await call_git(worktrees.repository, "status")

    assert not has_run(canary)


# G5


async def test_a_branch_moves_only_from_where_it_was(worktrees: Worktrees, repo: Path) -> None:
    old = await read_git_output(repo, "rev-parse", "main")
    tree = await read_git_output(repo, "rev-parse", "main^{tree}")
    reviewed = await write_commit(repo, tree, [old], "reviewed")
    raw = await write_commit(repo, tree, [old], "by a worker, past everybody")
    (repo / ".git" / "refs" / "heads" / "main").write_text(f"{raw}\n")

    with pytest.raises(Mistake, match=r"main has moved since .* was approved"):
        await advance_branch(worktrees.repository, "main", old=old, new=reviewed, tree=tree)

    assert await read_git_output(repo, "rev-parse", "main") == raw


# G6, G9


@pytest.mark.parametrize("scheme", ["{}", "file://{}", "ext::{}", "ssh://x/{}", "git://localhost{}"])
async def test_nothing_of_a_hostile_clone_runs_when_it_is_fetched_from(
    worktrees: Worktrees, tmp_path: Path, canary: Path, scheme: str
) -> None:
    evil = make_hostile_git_dir(tmp_path / "evil", canary)
    plant_hooks(evil / "hooks", canary)
    for setting in ("uploadpack.packObjectsHook", "core.alternateRefsCommand", "remote.origin.uploadpack"):
        run_git_as_person(evil, "config", setting, str(canary))
    run_git_as_person(evil, "config", "remote.origin.promisor", "true")
    has_run(canary)
    url = scheme.format(canary if scheme.startswith("ext") else evil)

    for command in (("fetch", url), ("ls-remote", url), ("clone", url, str(tmp_path / "clone"))):
        assert (await call_git(worktrees.repository, *command)).code != 0
    assert not has_run(canary)


async def test_submodules_are_neither_fetched_nor_entered(
    worktrees: Worktrees, repo: Path, tmp_path: Path, canary: Path
) -> None:
    run_git_as_person(tmp_path, "clone", "-q", str(repo), str(tmp_path / "library"))
    run_git_as_person(
        repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(tmp_path / "library"), "sub"
    )
    run_git_as_person(repo, "config", "--file", ".gitmodules", "submodule.sub.url", f"ext::{canary}")
    run_git_as_person(repo, "config", "submodule.recurse", "true")
    run_git_as_person(repo, "config", "submodule.sub.update", f"!{canary}")
    run_git_as_person(repo, "commit", "-q", "-a", "-m", "a submodule")

    checkout = await worktrees.create("feat")
    await call_git(checkout, "submodule", "update", "--init", "--recursive")

    assert list((checkout.path / "sub").iterdir()) == []
    assert not has_run(canary)


# G7


async def test_a_checkout_shaped_like_a_git_folder_is_not_taken_for_one(
    worktrees: Worktrees, repo: Path, tmp_path: Path, canary: Path
) -> None:
    checkout = await worktrees.create("feat")
    evil = make_hostile_git_dir(tmp_path / "evil", canary)
    for name in ("HEAD", "config"):
        (checkout.path / name).write_bytes((evil / name).read_bytes())
    for name in ("objects", "refs"):
        (checkout.path / name).mkdir()
    (checkout.path / ".git").unlink()
    run_git_as_person(checkout.path, "status")

    status = await worktrees.read_status(checkout)
    await run_every_git_call(worktrees, checkout)

    assert (status.modified, status.untracked) == (0, 2)
    assert not has_run(canary)
    with pytest.raises(Mistake, match=re.escape(str(evil))):
        Repository.at(evil)


@pytest.mark.parametrize("folder", ["../{branch}", "../x/{branch}/y"])
@pytest.mark.parametrize("name", [".git", ".GIT", ".git/hooks", "git~1"])
async def test_no_worktree_is_called_like_gits_own_folder(worktrees: Worktrees, folder: str, name: str) -> None:
    with pytest.raises(Mistake, match=r"is not a valid branch name|in git's own folder"):
        await replace(worktrees, folder=folder).create(name)
    with pytest.raises(Mistake, match=r"in git's own folder"):
        await replace(worktrees, folder=f"../{name}/{{branch}}").create("feat")


# G8


async def test_names_that_a_shell_or_git_would_act_on_are_only_text(
    worktrees: Worktrees, repo: Path, canary: Path
) -> None:
    for setting in ("user.email", "user.name"):
        run_git_as_person(repo, "config", setting, f"$({canary})`{canary}`; {canary}")
    (repo / f"--output=x;$({canary})").parent.mkdir(parents=True, exist_ok=True)
    (repo / f"--output=x;$({canary})").write_text("a file\n")
    branch = f"feat/$({canary.name})`{canary.name}`;x"

    for name in ("--upload-pack=x", "-b", "--exec=x"):
        with pytest.raises(Mistake, match=r"it looks like an option"):
            await worktrees.create(name)
        with pytest.raises(Mistake, match=r"commit .* not found"):
            await worktrees.create("fine", base=name)
        with pytest.raises(Mistake, match=r"no worktree"):
            await worktrees.remove(name)
    with pytest.raises(Mistake, match=r"shell"):
        await worktrees.create(branch)
    await run_every_git_call(worktrees, await worktrees.create("feat/x"))
    await take_snapshot(repo)

    assert not has_run(canary)


# G10


async def test_what_was_approved_is_what_a_branch_moves_to(worktrees: Worktrees, repo: Path) -> None:
    old = await read_git_output(repo, "rev-parse", "main")
    checkout = await worktrees.create("feat")
    (checkout.path / "a.txt").write_text("reviewed\n")
    reviewed = await take_snapshot(checkout)
    tree = await read_git_output(repo, "rev-parse", f"{reviewed}^{{tree}}")
    (checkout.path / "a.txt").write_text("changed after the review\n")
    pushed = await take_snapshot(checkout)
    unrelated = await write_commit(repo, tree, [], "does not descend")

    with pytest.raises(Mistake, match=r"is not the commit approved for main"):
        await advance_branch(worktrees.repository, "main", old=old, new=pushed, tree=tree)
    with pytest.raises(Mistake, match=r"does not contain all commits on main"):
        await advance_branch(worktrees.repository, "main", old=old, new=unrelated, tree=tree)
    assert await read_git_output(repo, "rev-parse", "main") == old

    await advance_branch(worktrees.repository, "main", old=old, new=reviewed, tree=tree)
    assert await read_git_output(repo, "rev-parse", "main") == reviewed
