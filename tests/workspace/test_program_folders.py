"""Commands cannot change the programs in a person's checkout that the person runs without looking at them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from podium.values.errors import Mistake
from podium.workspace.sandbox import checkout_survey
from podium.workspace.sandbox.bubblewrap import Sandbox

from .sandboxed import WHO, Place, new_place, ordinary_user
from .test_sandbox import warm_up


@pytest.fixture(scope="module", autouse=True)
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    anyio.run(warm_up, tmp_path_factory.mktemp("warm"))
    with ordinary_user():
        yield


@pytest.fixture(params=WHO)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with new_place(request.param) as made:
        yield made


PROGRAMS = (
    *(".venv/pyvenv.cfg", ".venv/bin/python", ".venv/lib/python3.11/site-packages/x.py"),
    *("tools/deep/env/pyvenv.cfg", "tools/deep/env/bin/git", "conda/conda-meta/history", "conda/bin/x"),
    *("node_modules/.bin/jest", "node_modules/jest/cli.js", "node_modules/.cache/x", "app/node_modules/a/index.js"),
    *("bin/tool", "scripts/run"),
)


def add_programs(place: Place) -> dict[str, str]:
    """Add environments, packages and folders on the PATH to a checkout. Return the environment with that PATH."""
    for name in PROGRAMS:
        (place.repo / name).parent.mkdir(parents=True, exist_ok=True)
        (place.repo / name).write_text("theirs")
    (place.repo / ".gitignore").write_text(".venv\nnode_modules\n")
    owner = place.repo.stat()
    for path in place.repo.rglob("*"):
        os.chown(path, owner.st_uid, owner.st_gid)
    return {**os.environ, "PATH": f"{place.repo}/bin:scripts:./absent/bin:{os.environ['PATH']}"}


ROOTS = (".venv", "tools", "conda", "node_modules", "app", "bin", "scripts", "venv", "absent")


def read_programs(place: Place) -> dict[str, str]:
    """Return the content of every file in the folders of programs and beside them."""
    files = [path for root in ROOTS for path in (place.repo / root).rglob("*") if path.is_file()]
    return {str(path.relative_to(place.repo)): path.read_text() for path in files}


ATTACK = (
    'for name in "$@"; do echo x >"$name"; rm -rf "$name"; mv "$(dirname "$name")" moved; ln -sf /etc "$name"; done; '
    "echo 'import evil' >.venv/lib/python3.11/site-packages/x.pth; echo x >.venv/bin/git; echo x >node_modules/.bin/x; "
    "echo x >bin/git; echo x >scripts/git; mkdir -p absent/bin venv/bin; echo x >absent/bin/git; echo x >venv/bin/git; "
    "mv tools other; mv tools/deep tools/x; mv app app2; rm -rf .venv node_modules; exit 0"
)


def test_programs_in_the_checkout_cannot_be_changed_or_made(place: Place) -> None:
    environ = add_programs(place)

    done = place.bash(ATTACK, *PROGRAMS, environ=environ)

    assert done.code == 0, done.text
    assert read_programs(place) == dict.fromkeys(PROGRAMS, "theirs")


def test_environments_are_not_made_where_tools_look_for_them(place: Place) -> None:
    done = place.bash(
        "mkdir -p .venv/bin venv/bin node_modules/.bin; echo x >.venv/bin/git; git status --short | wc -l"
    )

    assert done.text.endswith("\n0\n")
    assert sorted(path.name for path in place.repo.iterdir()) == [".git", "a.txt"]


def test_a_cache_in_packages_is_writable_and_private(place: Place) -> None:
    environ = add_programs(place)

    done = place.bash(
        "ls -A node_modules/.cache; echo mine >node_modules/.cache/y && echo mine >node_modules/.vite/z && "
        "cat node_modules/.cache/y node_modules/jest/cli.js",
        environ=environ,
    )

    assert done.text == "mine\ntheirs"
    assert sorted(path.name for path in (place.repo / "node_modules").iterdir()) == [".bin", ".cache", "jest"]
    assert sorted(path.name for path in (place.repo / "node_modules" / ".cache").iterdir()) == ["x"]


def test_programs_can_be_changed_where_that_is_allowed(place: Place) -> None:
    environ = add_programs(place)

    done = place.bash(
        "echo x >.venv/bin/git && echo x >node_modules/.bin/x && mkdir venv && echo fine",
        environ=environ,
        protects_programs=False,
    )

    assert done.text == "fine\n"
    assert (place.repo / ".venv" / "bin" / "git").exists()


@pytest.mark.slow
async def test_too_many_environments_are_refused_and_not_left_open(tmp_path: Path) -> None:
    script = "for i in {1..1001}; do mkdir $i; : >$i/pyvenv.cfg; done"
    subprocess.run(["bash", "-c", script], cwd=tmp_path, check=True)

    with pytest.raises(Mistake, match="at most 1000 can be protected"):
        await Sandbox.find(tmp_path, home=tmp_path.parent / "home")


def test_a_link_to_programs_is_restored(place: Place) -> None:
    for name in ("envs/main/pyvenv.cfg", "envs/main/bin/python", "tools/bin/x"):
        (place.repo / name).parent.mkdir(parents=True, exist_ok=True)
        (place.repo / name).write_text("theirs")
    (place.repo / ".venv").symlink_to("envs/main")
    (place.repo / "node_modules").symlink_to(place.folder / "elsewhere")
    (place.repo / "bin").symlink_to("tools/bin")
    owner = place.repo.stat()
    for path in place.repo.rglob("*"):
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
    environ = {**os.environ, "PATH": f"{place.repo}/bin:{os.environ['PATH']}"}

    done = place.bash(
        "for name in .venv node_modules bin; do rm $name; mkdir -p $name/bin; echo x >$name/bin/python; done; "
        "echo x >tools/bin/git; exit 0",
        environ=environ,
    )

    assert done.code == 0
    assert (place.repo / ".venv" / "bin" / "python").read_text() == "theirs"
    assert (place.repo / "node_modules").readlink() == place.folder / "elsewhere"
    assert [path.name for path in (place.repo / "bin").iterdir()] == ["x"]


def make_folders(place: Place, *names: str) -> None:
    """Make folders that belong to the owner of the checkout."""
    owner = place.repo.stat()
    for name in names:
        (place.repo / name).mkdir(parents=True, exist_ok=True)
        for folder in (place.repo / name, *(place.repo / name).parents):
            if folder.is_relative_to(place.repo):
                os.chown(folder, owner.st_uid, owner.st_gid)


LINKS = {
    "dangling": (".venv", "envs/main", "mkdir -p envs/main/bin; echo x >envs/main/bin/python"),
    "another name": ("node_modules", "shared/packages", "echo x >shared/packages/bin"),
    "another name in a subfolder": ("app/node_modules", "../shared/packages", "echo x >shared/packages/bin"),
    "of its folder": ("envs/x/bin", "../../shared/packages", "echo x >shared/packages/python"),
    "of its interpreter": ("envs/x/python", "../../app/py/bin/python3", "echo x >app/py/bin/git"),
    "in a subfolder": ("app/.venv", "../envs/x", "rm app/.venv; mkdir app/.venv; echo x >app/.venv/python"),
}


@pytest.mark.parametrize("how", LINKS)
def test_what_a_link_to_programs_leads_to_is_read_only_whatever_its_name(place: Place, how: str) -> None:
    link, target, script = LINKS[how]
    make_folders(place, "app/py/bin", "shared/packages", "envs/x")
    (place.repo / "envs" / "x" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    if how == "dangling":
        shutil.rmtree(place.repo / "envs")
    (place.repo / link).symlink_to(target)

    place.bash(script)

    assert (place.repo / link).is_symlink()
    files = {path.name for path in place.repo.rglob("*") if path.is_file() and ".git" not in path.parts}
    assert files == {"a.txt", *(() if how == "dangling" else ("pyvenv.cfg",))}


def test_environments_at_the_top_and_of_test_runners_are_read_only(place: Place) -> None:
    make_folders(place, "bin", "lib", ".tox/py/bin", ".nox/py/bin")
    for name in ("", ".tox/py/", ".nox/py/"):
        (place.repo / f"{name}pyvenv.cfg").write_text("home = /usr/bin\n")
    (place.repo / ".gitignore").write_text(".tox\n.nox\n")

    place.bash(
        "echo x >bin/python; echo x >lib/x.pth; echo x >pyvenv.cfg; rm pyvenv.cfg; echo x >.tox/py/bin/python; "
        "echo x >.nox/py/bin/python; mkdir -p .tox/log other && touch .tox/log/x other/x"
    )

    programs = ("bin/python", "lib/x.pth", ".tox/py/bin/python", ".nox/py/bin/python")
    assert [name for name in programs if (place.repo / name).exists()] == []
    assert (place.repo / "pyvenv.cfg").read_text() == "home = /usr/bin\n"
    assert (place.repo / ".tox/log/x").exists()
    assert (place.repo / "other/x").exists()


def test_many_new_folders_hide_no_environment_and_no_tracked_folder(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MOST_FOLDERS", "MOST"):
        monkeypatch.setattr(checkout_survey, name, 20)
    make_folders(place, "backend/.venv/bin", "tracked/deep")
    (place.repo / "backend/.venv/pyvenv.cfg").write_text("home = /usr/bin\n")
    for name in ("backend/x", "tracked/deep/x"):
        (place.repo / name).write_text("x\n")
    place.git("add", "tracked")
    # Whatever the order in which the file system lists folders, some of these come first.
    make_folders(place, *(f"{letter}{number}" for letter in "az" for number in range(30)))

    place.bash("echo x >backend/.venv/bin/python; mkdir tracked/deep/new; cd tracked/deep/new; git init -q .; true")

    assert not (place.repo / "backend/.venv/bin/python").exists()
    assert not (place.repo / "tracked/deep/new/.git").exists()
