"""Commands cannot change the programs in a person's checkout that the person runs without looking at them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from podium.values.errors import Mistake
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
