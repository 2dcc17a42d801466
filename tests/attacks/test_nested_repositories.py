"""A command creates a repository inside the checkout whose configuration makes git run a program for the next user."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from podium.values.event import Noticed, PermissionAsked, ToolAnswered

from ..studio import Studio
from ..workspace.sandboxed import Place
from .stage import SharedSandboxPlace, add_sly_agent, bash, run_sly_agent, set_rules, write

TRAP = "git config core.fsmonitor 'touch {trace}; false'"


def add_submodule(place: Place, *, path: str = "vendor/lib", is_initialised: bool = False) -> None:
    """Add a submodule to the repository, initialised or as a plain clone leaves it."""
    library = place.folder / "library"
    clone_file = ("-c", "protocol.file.allow=always", "-c", "user.name=T", "-c", "user.email=t@example.com")
    place.git("clone", "-q", str(place.repo), str(library))
    place.git(*clone_file, "submodule", "--quiet", "add", str(library), path)
    place.git(*clone_file, "commit", "-q", "-m", "a submodule")
    if not is_initialised:
        place.git("submodule", "--quiet", "deinit", "-f", path)


def enter_as_person(place: Place, *folders: str) -> None:
    """Use the checkout as a person would: look at it, add everything, and enter these folders."""
    place.git("status")
    place.git("-c", "advice.addEmbeddedRepo=false", "add", "-A")
    place.git("status")
    for folder in folders:
        subprocess.run(["git", "status"], cwd=place.repo / folder, capture_output=True, check=False)


@pytest.mark.parametrize("state", ["initialised", "not initialised", "missing"])
def test_a_command_cannot_make_a_repository_of_a_submodule(place: Place, state: str) -> None:
    add_submodule(place, is_initialised=state == "initialised")
    if state == "missing":
        (place.repo / "vendor" / "lib").rmdir()
        (place.repo / "vendor").rmdir()
    trace = place.folder / "trace"
    before = place.git("status", "--short")

    done = place.bash(
        "mv vendor moved; mkdir -p vendor/lib; cd vendor/lib; rm -rf .git; mv .git gone; git init -q .; "
        f"{TRAP.format(trace=trace)}; cd ../..; git status --short; exit 0"
    )

    assert place.git("status", "--short") == before
    assert done.text.endswith("" if state == "missing" else before)
    assert not (place.repo / "moved").exists()
    enter_as_person(place, ".", *(() if state == "missing" else ("vendor/lib",)))
    assert not trace.exists()


def test_the_submodules_of_a_submodule_are_closed_too(place: Place) -> None:
    add_submodule(place, path="inner", is_initialised=True)
    deeper = Place(place.who, place.folder / "deeper")
    deeper.folder.mkdir()
    os.chown(deeper.folder, place.repo.stat().st_uid, place.repo.stat().st_gid)
    subprocess.run(["cp", "-a", str(place.repo), str(deeper.folder / "base")], check=True)
    place.git("init", "-q", "-b", "main", str(deeper.repo))
    options = ("-c", "protocol.file.allow=always", "-c", "user.name=T", "-c", "user.email=t@example.com")
    deeper.git(*options, "submodule", "--quiet", "add", str(deeper.folder / "base"), "outer")
    deeper.git(*options, "commit", "-q", "-m", "a submodule with a submodule")
    (deeper.folder / "podium").mkdir()
    os.chown(deeper.folder / "podium", place.repo.stat().st_uid, place.repo.stat().st_gid)

    done = deeper.bash("cd outer/inner && git init -q . ; exit 0")

    assert "Read-only file system" in done.text or "Permission denied" in done.text or "Device or" in done.text
    assert not (deeper.repo / "outer" / "inner" / ".git").exists()


PLANTS = {
    "folder": "mkdir -p src/deep; cd src/deep; git init -q .; {trap}",
    "tracked folder": "cd src; git init -q .; {trap}",
    "file": "mkdir x; git init -q x/real; cd x/real; {trap}; cd ..; mv real/.git real/y; echo 'gitdir: real/y' >.git",
    "link": "mkdir -p x/y; cd x/y; git init -q .; {trap}; mv .git z; ln -s z .git",
    "bare": "cd src; git init -q --bare .; git config core.bare false; git config core.worktree .; {trap}",
    "in two steps": "mkdir -p new/.git",
    "closed folder": "cd src; git init -q .; {trap}; chmod 555 .git; cd ..; chmod 311 src",
    "moved": 'mkdir -p /tmp/r; cd /tmp/r; git init -q .; {trap}; cp -r /tmp/r "$OLDPWD/src/r"',
    "upper case": "cd src; git init -q .; {trap}; mv .git .GIT",
}


@pytest.mark.parametrize("how", PLANTS)
def test_a_repository_that_a_command_makes_is_moved_aside_and_reported(place: Place, how: str) -> None:
    (place.repo / "src").mkdir()
    (place.repo / "src" / "main.py").write_text("pass\n")
    for path in (place.repo / "src", place.repo / "src" / "main.py"):
        os.chown(path, place.repo.stat().st_uid, place.repo.stat().st_gid)
    trace = place.folder / "trace"
    plant = PLANTS[how].format(trap=TRAP.format(trace=trace))
    finish = f"if [ -d new/.git ]; then cd new; git init -q .; {TRAP.format(trace=trace)}; fi"

    SharedSandboxPlace(place.who, place.folder).run_in_turn(f"({plant})", f"({finish})")

    enter_as_person(
        place, "src", *(name for name in ("src/deep", "src/r", "new", "x", "x/y") if (place.repo / name).exists())
    )
    assert not trace.exists()
    assert (place.repo / "src" / "main.py").read_text() == "pass\n"
    assert list((place.home / "sandbox" / "set-aside").iterdir()) != []


def test_a_repository_in_an_ignored_cache_is_moved_aside(place: Place) -> None:
    (place.repo / ".git" / "info" / "exclude").write_text("__pycache__\n.mypy_cache\n")
    for folder in ("__pycache__", ".mypy_cache", ".mypy_cache/3.12"):
        (place.repo / folder).mkdir()
        os.chown(place.repo / folder, place.repo.stat().st_uid, place.repo.stat().st_gid)
    trace = place.folder / "trace"
    trap = TRAP.format(trace=trace)

    place.bash(
        f"(mkdir __pycache__/x; cd __pycache__/x; git init -q .; {trap}); ln -s __pycache__/x manual; "
        f"mkdir .mypy_cache/3.12/x; cd .mypy_cache/3.12/x; git init -q .; {trap}"
    )

    enter_as_person(place, "manual", ".mypy_cache/3.12/x")
    assert not trace.exists()


def test_a_repository_of_another_program_is_moved_aside_unless_it_was_there(place: Place) -> None:
    for folder in ("old", "old/.hg"):
        (place.repo / folder).mkdir()
        os.chown(place.repo / folder, place.repo.stat().st_uid, place.repo.stat().st_gid)
    (place.repo / "old/.hg/hgrc").write_text("[ui]\n")

    told = SharedSandboxPlace(place.who, place.folder).run_in_turn(
        "mkdir -p sub/.hg /tmp/x/.jj; echo '[hooks]' >sub/.hg/hgrc; cp -r /tmp/x new; mkdir old/.sl; touch old/y",
        "mkdir sub/.HG; ls",
    )

    assert sorted(path.name for path in place.repo.rglob(".*") if path.name.lower() in (".hg", ".jj", ".sl")) == [".hg"]
    assert (place.repo / "old/.hg/hgrc").read_text() == "[ui]\n"
    assert "sub" in told[1]
    assert len(list((place.home / "sandbox" / "set-aside").iterdir())) == 4


TOPS = {
    "bare": "git init -q --bare /tmp/r; cp -r /tmp/r/. .; git --git-dir=. config core.bare false; "
    "git --git-dir=. config core.worktree ..; git --git-dir=. config core.fsmonitor 'touch {trace}; false'",
    "borrowing": "git init -q --bare own/x; git -C own/x config core.bare false; "
    "git -C own/x config core.fsmonitor 'touch {trace}; false'; cp own/x/HEAD .; echo own/x >commondir",
    "with an empty .git": "mkdir -p .git; git init -q --bare /tmp/r; cp -r /tmp/r/. .; "
    "printf '[core]\n repositoryformatversion = 0\n bare = false\n worktree = .\n"
    " fsmonitor = touch {trace}; false\n' >config",
}


@pytest.mark.parametrize("how", TOPS)
def test_a_folder_that_is_no_repository_is_not_made_one_at_its_top(place: Place, how: str) -> None:
    shutil.rmtree(place.repo / ".git")
    trace = place.folder / "trace"

    told = SharedSandboxPlace(place.who, place.folder).run_in_turn(
        f"({TOPS[how].format(trace=trace)}) 2>&1; ls", "cat HEAD config"
    )

    subprocess.run(["git", "status"], cwd=place.repo, capture_output=True, check=False)
    subprocess.run(["git", "--git-dir=.", "status"], cwd=place.repo, capture_output=True, check=False)
    assert not trace.exists()
    assert "refs" in told[0] or "commondir" in told[0]
    assert "HEAD: No such file" in told[1]
    assert (place.repo / "a.txt").read_text() == "one\n"


@pytest.mark.slow  # removing the folders takes longest
def test_a_repository_is_found_behind_20_000_new_folders(place: Place) -> None:
    trace = place.folder / "trace"

    told = SharedSandboxPlace(place.who, place.folder).run_in_turn(
        "mkdir a; cd a; for outer in {1..150}; do mkdir $outer; (cd $outer && mkdir {1..140}); done; "
        f"cd 150/140; mkdir -p z/z; cd z/z; git init -q .; {TRAP.format(trace=trace)}",
    )

    assert "a/150/140/z/z/.git was moved to" in told[0] or not (place.repo / "a/150/140/z/z/.git").exists()
    enter_as_person(place, "a/150/140/z/z")
    assert not trace.exists()


async def test_a_run_goes_on_and_its_timeline_says_what_was_moved_aside(studio: Studio, repo: Path) -> None:
    set_rules(studio, mode="bypass")
    add_sly_agent(studio, bash("git init -q sub && echo done"), bash("ls -A sub"))

    result = await run_sly_agent(studio, repo)

    notices = [event.text for event in studio.events(result, Noticed)]
    answers = [event.text for event in studio.events(result, ToolAnswered)]
    assert [text for text in notices if text.startswith("sub/.git was moved to ")] != []
    assert "sub/.git was moved to " in answers[0]
    assert ".git" not in answers[1]
    assert result.text == "done"


def test_repositories_that_were_there_before_stay_and_cannot_be_changed(place: Place) -> None:
    for name in ("own", "bare.git"):
        place.git("init", "-q", *(["--bare"] if name == "bare.git" else []), name)
    before = (place.repo / "own" / ".git" / "config").read_text()

    told = SharedSandboxPlace(place.who, place.folder).run_in_turn(
        "git -C own status --short; echo '[core]' >>own/.git/config; echo '[core]' >>bare.git/config; mv own moved; "
        "mv own/.git own/x; echo x >own/file; mv bare.git other"
    )

    assert (place.repo / "own" / ".git" / "config").read_text() == before
    assert sorted(path.name for path in place.repo.iterdir()) == [".git", "a.txt", "bare.git", "own"]
    assert (place.repo / "own" / "file").read_text() == "x\n"
    assert "moved to" not in told[0]


def test_a_worktree_that_the_person_adds_while_commands_run_stays(place: Place) -> None:
    shared = SharedSandboxPlace(place.who, place.folder)
    place.git("worktree", "add", "-q", "-b", "work", "tree")

    told = shared.run_in_turn("true", "git -C tree status --short --branch")

    assert told[1] == "## work\n"


NESTED = ("app/.vscode/settings.json", "app/.envrc", "app/.mcp.json", "app/.podium/agents/x.md", ".config/git/config")


def test_nested_protected_paths_cannot_be_changed(place: Place) -> None:
    for name in NESTED:
        (place.repo / name).parent.mkdir(parents=True, exist_ok=True)
        (place.repo / name).write_text("theirs")
    for path in place.repo.rglob("*"):
        os.chown(path, place.repo.stat().st_uid, place.repo.stat().st_gid)

    place.bash(
        'mv app moved; mv .config other; for name in "$@"; do echo x >"$name"; rm -f "$name"; done; exit 0', *NESTED
    )

    assert [(place.repo / name).read_text() for name in NESTED] == ["theirs"] * len(NESTED)


def test_files_that_the_repositorys_configuration_names_cannot_be_changed(place: Place) -> None:
    names = ("tools/hooks/pre-commit", "shared.gitconfig", "for-work.gitconfig")
    for name in names:
        (place.repo / name).parent.mkdir(parents=True, exist_ok=True)
        (place.repo / name).write_text("# theirs\n")
    for path in place.repo.rglob("*"):
        os.chown(path, place.repo.stat().st_uid, place.repo.stat().st_gid)
    place.git("config", "core.hooksPath", "tools/hooks")
    place.git("config", "include.path", "../shared.gitconfig")
    place.git("config", "includeIf.onbranch:main.path", str(place.repo / "for-work.gitconfig"))

    place.bash(
        'mv tools away; echo x >tools/hooks/new; for name in "$@"; do echo x >"$name"; rm -f "$name"; done; exit 0',
        *names,
    )

    assert [(place.repo / name).read_text() for name in names] == ["# theirs\n"] * len(names)
    assert [path.name for path in (place.repo / "tools" / "hooks").iterdir()] == ["pre-commit"]


def test_a_link_in_the_way_of_a_submodule_shows_and_creates_nothing_outside(place: Place) -> None:
    add_submodule(place)
    other = place.folder / "other"
    place.git("init", "-q", str(other / "lib"))
    (other / "lib" / ".git" / "description").write_text("CANARY")
    (place.repo / "vendor" / "lib").rmdir()
    (place.repo / "vendor").rmdir()
    (place.repo / "vendor").symlink_to(other)

    done = place.bash("cat vendor/lib/.git/description")

    assert "CANARY" not in done.text
    assert [path.name for path in other.iterdir()] == ["lib"]


BORROW = {
    "file": "rm -rf .git; echo 'gitdir: {other}/.git' >.git",
    "commondir": "echo '{other}/.git' >.git/commondir",
    "alternates": "echo '{other}/.git/objects' >.git/objects/info/alternates",
    "worktree of another": "rm -rf .git; echo 'gitdir: {other}/.git/worktrees/tree' >.git",
    "module of another": "rm -rf .git; echo 'gitdir: ../other/.git/modules/x/../..' >.git",
}


@pytest.mark.parametrize("how", BORROW)
def test_a_checkout_cannot_name_another_repository_to_be_shown(place: Place, how: str) -> None:
    other = place.folder / "other"
    place.git("clone", "-q", str(place.repo), str(other))
    (other / "secret.txt").write_text("CANARY")
    place.git("-C", str(other), "worktree", "add", "-q", "--detach", "../tree")
    stored = place.git("-C", str(other), "hash-object", "-w", "secret.txt").strip()
    subprocess.run(["/bin/sh", "-c", BORROW[how].format(other=other)], cwd=place.repo, check=True)

    done = place.bash('git cat-file -p "$1"; ls -A "$2/.git" "$2/.git/objects"; exit 0', stored, str(other))

    assert "CANARY" not in done.text
    assert "HEAD" not in done.text
    assert "info" not in done.text


@pytest.mark.parametrize("shape", ["bare", "borrowing"])
async def test_a_person_decides_whether_a_tool_completes_a_repository(studio: Studio, repo: Path, shape: str) -> None:
    set_rules(studio, mode="bypass")
    trace = repo.parent / "trace"
    config = (
        f"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n\tfsmonitor = touch {trace}; false\n"
    )
    shared = ("sub/objects/a", "sub/refs/a") if shape == "bare" else ("sub/commondir",)
    content = {"sub/HEAD": "ref: refs/heads/main\n", "sub/config": config, "sub/commondir": "../.git\n"}
    names = ["sub/x.py", "sub/config", *shared, "sub/HEAD"]
    add_sly_agent(studio, *(write(name, content.get(name, "x\n")) for name in names))

    result = await run_sly_agent(studio, repo)

    asked = studio.events(result, PermissionAsked)
    assert [(event.action.arguments["path"], event.reason.split(", whose")[0]) for event in asked] == [
        ("sub/HEAD", "with sub/HEAD, git takes sub for a repository")
    ]
    subprocess.run(["git", "status"], cwd=repo / "sub", capture_output=True, check=False)
    assert not trace.exists()
    assert (repo / "sub" / "config").exists()
