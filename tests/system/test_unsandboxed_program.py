"""What a program outside the sandbox runs does not depend on any checkout."""

import os
from pathlib import Path

import pytest

from podium.files.program_start import plan_start
from podium.system.checkouts import Checkouts, find_checkouts
from podium.system.unsandboxed_program import (
    build_unsandboxed_environment,
    find_unsandboxed_program,
    open_start_folder,
)
from podium.testing import make_repository, run_git
from podium.values.errors import Mistake


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    (folder / "tools").mkdir(parents=True)
    return folder


@pytest.fixture
def checkouts(repo: Path) -> Checkouts:
    return find_checkouts(repo)


def make_program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_path_leads_into_a_checkout_by_its_name_and_by_every_link_on_its_way(
    tmp_path: Path, repo: Path, checkouts: Checkouts
) -> None:
    (tmp_path / "outside").mkdir()
    (repo / "back").symlink_to(tmp_path / "outside")
    (tmp_path / "folder").symlink_to(repo / "tools")
    (tmp_path / "hop").symlink_to("folder")
    (tmp_path / "through").symlink_to(repo / "back")
    (tmp_path / "loop").symlink_to("loop")

    inside: list[str | Path] = [
        *(repo, repo / "tools", repo / "missing" / "x", f"{repo}/", f"{tmp_path}//repo///tools"),
        *(f"{tmp_path}/outside/../repo/x", f"{tmp_path}/missing/../repo/x", f"{repo}/tools/../../repo"),
        *(tmp_path / "folder" / "x", tmp_path / "hop" / "x", tmp_path / "through" / "x"),
    ]
    outside: list[str | Path] = [
        tmp_path,
        tmp_path / "outside" / "x",
        tmp_path / "repository",
        tmp_path / "loop" / "x",
        "/usr/bin",
    ]

    assert [path for path in inside if not checkouts.contain(path)] == []
    assert [path for path in outside if checkouts.contain(path)] == []


def test_all_worktrees_of_a_repository_are_checkouts(tmp_path: Path) -> None:
    main, linked, other = tmp_path / "main", tmp_path / "linked", tmp_path / "other"
    make_repository(main, {})
    for folder in (linked, other):
        run_git(main, "worktree", "add", "-q", "--detach", folder)

    for start in (main, linked, other):
        assert set(find_checkouts(start).folders) == {str(main), str(linked), str(other)}


@pytest.mark.parametrize(
    "word",
    [
        *("{repo}/x.py", "--config={repo}/x.py", "-r{repo}/x.js", "file://{repo}/x.js", "file:{repo}/x.js"),
        *(
            "a:{repo}/b",
            "type=bind,source={repo},target=/w",
            "{repo}",
            "sh {repo}/x.sh; true",
            "<{repo}/x",
            "@{repo}/x",
        ),
        *("$BASE/repo/x", "${{BASE}}/repo/x", '"$BASE"/repo/x', "'{repo}'/x", "{base}/\\repo/x", "$(cat {repo}/x)"),
        *("//{repo}/x", "{base}/./repo/x", "{base}/none/../repo/x", "x" * 20_000),
        *("sh {base}/re*/absent.sh", "{base}/r?po/x", "{base}/[r]epo/x", "{base}/l*k/x", "{base}/{{repo,}}/x"),
        *("file://{base}/re%70o/x.js", "/*/*/*/*/*/*"),
    ],
)
def test_every_spelling_of_a_path_in_a_word_is_found(tmp_path: Path, checkouts: Checkouts, word: str) -> None:
    (tmp_path / "link").symlink_to("repo")
    word = word.format(repo=tmp_path / "repo", base=tmp_path)

    assert checkouts.list_named(word, {"BASE": str(tmp_path)})


def test_words_that_name_nothing_in_a_checkout_are_left_alone(tmp_path: Path, checkouts: Checkouts) -> None:
    words = [
        "-m",
        "mcp_server_time",
        "@scope/package",
        "https://example.com/repo/x",
        "/usr/bin/env",
        f"{tmp_path}/other",
        f"{tmp_path}/other*/x",
        "^/api/.*[a-z]{2,}$",
    ]

    assert [word for word in words if checkouts.list_named(word)] == []
    assert Checkouts().list_named(str(tmp_path / "repo")) == ()


def test_a_home_folder_in_a_word_is_expanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkouts: Checkouts
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert checkouts.list_named("~/repo/x")
    assert checkouts.list_named("$HOME/repo/x")
    assert not checkouts.list_named("~/other/x")


@pytest.mark.parametrize(
    "command",
    [
        *(
            ["sh", "-c", "cd {base}; sh repo/x.sh"],
            ["sh", "-c", "cd && sh repo/x.sh"],
            ["sh", "-c", "cd ~;. repo/x.sh"],
        ),
        *(["env", "--chdir={base}", "sh", "repo/x.sh"], ["make", "-C", "{base}", "-f", "repo/x.sh"]),
        *(["sh", "-c", 'cd "${{PODIUM_REPO%/}}" && make'], ["sh", "-c", "cd ${{PODIUM_REPO:-/}}; make"]),
        *(["nice", "sh", "-c", "cd; sh repo/x.sh"], ["bash", "-l", "-o", "pipefail", "-c", "cd; cd repo; make"]),
        *(["env", "-S", "sh -c 'cd; sh repo/x.sh'"], ["perl", "-e", "chdir; do 'repo/x.sh'"]),
        *(["su", "-", "me", "-c", "repo/x.sh"], ["ssh", "localhost", "sh", "repo/x.sh"]),
        ["sh", "-c", ". /proc/$PPID/cwd/x.sh"],
    ],
)
def test_a_command_that_can_change_to_the_checkout_depends_on_it(
    tmp_path: Path, repo: Path, checkouts: Checkouts, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (repo / "x.sh").write_text("true\n")
    words = [word.format(base=tmp_path) for word in command]
    known = {"PODIUM_REPO": str(repo)}

    plan = plan_start(words, cwd="", env={}, repo=repo, checkouts=checkouts, variables=known)

    assert plan.is_dependent


@pytest.mark.parametrize(
    "command",
    [
        *(["node", "none/../../../repo/x.js"], ["node", "--require=none/../../x.js"], ["make", "-C../../repo"]),
        *(["sh", "-c", "cd ..; cd ..; sh repo/x.sh"], ["sh", "-c", "sh none/../../../repo/x.sh"], ["node", "-r./x.js"]),
    ],
)
def test_a_path_that_leads_out_of_the_start_folder_is_refused(
    repo: Path, checkouts: Checkouts, command: list[str]
) -> None:
    with pytest.raises(Mistake, match="is a relative path"):
        plan_start(command, cwd="", env={}, repo=repo, checkouts=checkouts, variables={})


def test_a_command_beside_the_checkout_does_not_depend_on_it(
    tmp_path: Path, repo: Path, checkouts: Checkouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    commands = [
        ["server-filesystem", str(tmp_path)],
        ["sh", "-c", "cd ~ && echo done >>log/x; cat log/*.txt"],
        ["npx", "-y", "@scope/server@1.2.3", "--range", "1..3", "a/../b"],
    ]

    plans = [plan_start(one, cwd="", env={}, repo=repo, checkouts=checkouts, variables={}) for one in commands]

    assert [plan.is_dependent for plan in plans] == [False, False, False]


def test_many_slashes_are_examined_quickly(checkouts: Checkouts) -> None:
    for word in (
        "/" * 8_000,
        "/a" * 4_000,
        "/.." * 2_500,
        "./" * 4_000,
        "~/" * 4_000,
        "/:" * 4_000,
        "/*" * 490,
        "/*:" * 490,
    ):
        checkouts.list_named(word)


def test_the_environment_names_nothing_in_a_checkout(tmp_path: Path, repo: Path, checkouts: Checkouts) -> None:
    (tmp_path / "link").symlink_to(repo / "tools")
    environ = {
        "PATH": f"{repo}/.venv/bin:.:/usr/bin::{tmp_path}/link:bin:/bin:{repo}",
        "PYTHONPATH": f"src:{repo}/src:/opt/lib",
        "NODE_PATH": f"{repo}/node_modules",
        "LD_LIBRARY_PATH": f"/opt/lib:{repo}",
        "RUBYLIB": "lib",
        "PERL5LIB": f"{repo}/lib",
        "XDG_DATA_DIRS": f"/usr/share:{repo}/share",
        "NODE_OPTIONS": f"--require {repo}/hook.js",
        "RUBYOPT": "-r./hook",
        "PYTHONHOME": f"{repo}/.venv",
        "VIRTUAL_ENV": f"{repo}/.venv",
        "GIT_DIR": ".git",
        "npm_config_prefix": f"{repo}/node_modules",
        "NPM_CONFIG_USERCONFIG": "./.npmrc",
        "LD_PRELOAD": "./evil.so",
        "BASH_ENV": "tools/env.sh",
        "UV_PROJECT": f"{repo}",
        "TMPDIR": f"{repo}/tmp",
        "ANYTHING": f"x={repo}/y",
    }

    kept = build_unsandboxed_environment(environ, checkouts)

    assert kept == {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": "/opt/lib",
        "LD_LIBRARY_PATH": "/opt/lib",
        "XDG_DATA_DIRS": "/usr/share",
        "PYTHONSAFEPATH": "1",
    }


def test_the_rest_of_the_environment_is_kept(tmp_path: Path, checkouts: Checkouts) -> None:
    environ = {
        "HOME": str(tmp_path / "home"),
        "PATH": "/usr/bin",
        "TZ": "Europe/Vienna",
        "NODE_OPTIONS": "--max-old-space-size=4096",
        "VIRTUAL_ENV": "/opt/venv",
        "NO_COLOR": "",
        "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/1000/bus",
        "MEMORY_FILE_PATH": "memory.json",
        "URL": "https://example.com/a/b",
    }

    assert build_unsandboxed_environment(environ, checkouts) == {**environ, "PYTHONSAFEPATH": "1"}


def test_only_a_definition_lets_python_look_into_the_folder_of_a_script(checkouts: Checkouts) -> None:
    own = build_unsandboxed_environment({"PYTHONSAFEPATH": ""}, checkouts)
    given = build_unsandboxed_environment({}, checkouts, {"PYTHONSAFEPATH": "", "MODE": "fast"})

    assert own["PYTHONSAFEPATH"] == "1"
    assert given["PYTHONSAFEPATH"] == ""
    assert given["MODE"] == "fast"


def test_without_a_folder_that_may_be_searched_only_the_systems_are(repo: Path, checkouts: Checkouts) -> None:
    environ = {"PATH": f"{repo}/bin:.", "HOME": str(repo)}

    kept = build_unsandboxed_environment(environ, checkouts)

    assert kept["PATH"] == os.defpath
    assert kept["HOME"] == "/nonexistent"


def test_a_program_is_never_found_in_a_checkout(tmp_path: Path, repo: Path, checkouts: Checkouts) -> None:
    make_program(repo / ".venv/bin/tool")
    make_program(repo / "node_modules/.bin/tool")
    (tmp_path / "links").mkdir()
    (tmp_path / "links/tool").symlink_to(repo / ".venv/bin/tool")
    (tmp_path / "folder").symlink_to(repo / ".venv/bin")
    make_program(tmp_path / "scripts/tool", f"#!{repo}/.venv/bin/python\n")
    make_program(tmp_path / "long/tool", f"#!/bin/sh\n'''exec' \"{repo}/.venv/bin/python\" \"$0\" \"$@\"\n' '''\n")
    honest = make_program(tmp_path / "bin/tool")
    evil = [
        repo / ".venv/bin",
        repo / "node_modules/.bin",
        *(tmp_path / name for name in ("links", "folder", "scripts", "long")),
    ]
    path = os.pathsep.join(map(str, (*evil, ".", "", honest.parent)))

    assert find_unsandboxed_program("tool", path, checkouts) == str(honest)
    for folder in evil:
        with pytest.raises(Mistake, match="found only in a checkout"):
            find_unsandboxed_program("tool", str(folder), checkouts)
        with pytest.raises(Mistake, match="where agents' commands can change it"):
            find_unsandboxed_program(str(folder / "tool"), "", checkouts)


def test_a_program_that_does_not_exist_or_is_relative_is_named_in_the_error(checkouts: Checkouts) -> None:
    with pytest.raises(Mistake, match=r"^program 'absent' not found on the PATH$"):
        find_unsandboxed_program("absent", "/usr/bin", checkouts)
    with pytest.raises(Mistake, match="'bin/tool' is a relative path"):
        find_unsandboxed_program("bin/tool", "/usr/bin", checkouts)


def test_a_program_starts_in_an_empty_private_folder(tmp_path: Path, checkouts: Checkouts) -> None:
    with open_start_folder(tmp_path / "home", checkouts) as folder:
        assert list(folder.iterdir()) == []
        assert folder.stat().st_mode & 0o777 == 0o700
        assert folder.is_relative_to(tmp_path / "home")

    assert not folder.exists()


def test_a_home_in_a_checkout_is_no_place_to_start_programs(repo: Path, checkouts: Checkouts) -> None:
    with open_start_folder(repo / ".home", checkouts) as folder:
        assert folder == Path("/")

    assert not (repo / ".home").exists()
