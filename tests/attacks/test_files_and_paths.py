"""Attacks using paths, links and file names, both in tool calls from a model and in commands typed by a person."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podium import Agent
from podium.files.agent_file import parse_agent_file
from podium.store.reader import StoreReader
from podium.store.wakeup import ensure_socket_folder
from podium.system.whole_file import replace_file
from podium.testing import Move
from podium.values.errors import PodiumError, StoreFailed
from podium.values.event import ActionBegan, ToolAnswered

from ..cli.conftest import Desk
from ..studio import Studio
from ..workspace.sandboxed import Place
from .stage import SharedSandboxPlace, add_sly_agent, bash, call, run_sly_agent, set_rules, write

# F1, F3

LINKS = {
    "absolute": "/etc",
    "up": "../..",
    "beside": "../outside",
    "root": "/",
    "dangling": "../outside/new",
    "loop": "loop",
    "self": "/proc/self/cwd/..",
    "nested/deep/link": "../../../outside",
}
PATHS = [
    *(f"{name}/x" for name in LINKS),
    "dangling",
    "../outside/x",
    "a/../../outside/x",
    "/etc/podium-canary",
    "~/podium-canary",
    "a\0b",
    "a\nb",
    "x" * 4096,
    "C:\\podium-canary",
    "․․/outside/x",
    "．．/outside/x",
    "..%2foutside%2fx",
    "\\..\\outside\\x",
]


async def test_no_path_of_a_model_leads_out_of_the_checkout(studio: Studio, repo: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("CANARY")
    (repo / "nested" / "deep").mkdir(parents=True)
    for name, target in LINKS.items():
        (repo / name).symlink_to(target)
    set_rules(studio, mode="bypass")
    moves = [write(path) for path in PATHS]
    moves += [call("edit_file", path=f"{n}/secret", edits=[{"old": "CANARY", "new": "x"}]) for n in ("beside", "up")]
    moves += [call("read_file", path=path) for path in ("beside/secret", "../outside/secret", "self/outside/secret")]
    moves += [call("grep", pattern="CAN.RY", path="beside"), call("glob", pattern="**/secret")]
    add_sly_agent(studio, *moves)

    result = await run_sly_agent(studio, repo)

    assert result.text == "done"
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"secret": "CANARY"}
    assert not Path("/etc/podium-canary").exists()
    assert not Path("~/podium-canary").expanduser().exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "outside", "repo"]
    assert not any("CANARY" in event.text for event in studio.events(result, ToolAnswered))


async def test_a_refused_path_states_the_reason(studio: Studio, repo: Path) -> None:
    (repo / "link").symlink_to("/etc")
    set_rules(studio, mode="bypass")
    add_sly_agent(studio, write("link/podium-canary"))

    result = await run_sly_agent(studio, repo)

    [answered] = studio.events(result, ToolAnswered)
    assert answered.is_error
    assert "link" in answered.text
    assert studio.events(result, ActionBegan) == []


# F4

BAD_NAMES = [
    ".git",
    "..",
    "-rf",
    "a/b",
    "HEAD",
    "A",
    "a" * 300,
    "$(id)",
    "\u202eabc",
    "a b",
    "",
    ".",
    "a\nb",
    "a\0b",
    "~",
]


@pytest.mark.parametrize("name", BAD_NAMES)
async def test_a_bad_name_is_refused_before_anything_begins(studio: Studio, name: str) -> None:
    agent = Agent(name=name, engine="scripted")

    with pytest.raises(PodiumError):
        async with studio.app() as app:
            await app.run(agent, "go")

    with StoreReader(studio.settings.store) as reader:
        assert reader.list_runs() == []


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_is_refused_in_a_file_and_on_the_command_line(desk: Desk, name: str) -> None:
    written = f"---\nname: {json.dumps(name)}\ndescription: x\n---\nx\n"

    read = parse_agent_file(written.encode(), path=Path("good.md"), source="repo")
    typed = desk.invoke("run", "--", name, "go")

    assert read.agent is None
    assert typed.exit_code == 2
    assert [path.name for path in desk.repo.iterdir()] == [".git"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(max_size=80))
def test_whatever_is_typed_as_the_name_of_a_run_or_agent_is_found_or_refused(desk: Desk, name: str) -> None:
    before = sorted(path for path in desk.repo.rglob("*"))

    codes = [desk.invoke(verb, "--", name).exit_code for verb in ("show", "resume", "stop", "graph")]

    assert all(code in (0, 1, 2) for code in codes)
    assert sorted(path for path in desk.repo.rglob("*")) == before


# F7


@pytest.mark.parametrize(
    "look",
    [
        call("read_file", path=".env"),
        call("read_file", path="way"),
        call("grep", pattern="CAN.RY"),
        call("grep", pattern="CAN.RY", path=".env"),
        call("git_diff"),
        bash("cat .env way keys/id_rsa"),
        bash("grep -r CAN.RY ."),
        bash("find . -name .env -exec cat {} +"),
        bash("python3 -c 'print(open(\".env\").read())'"),
        bash("rg --hidden --no-ignore --pre cat CAN.RY"),
        bash("git show :.env"),
        bash("git grep --no-index CAN.RY"),
        bash("cp .env copy"),
        bash("mv .env copy"),
        bash("tar cf - .env"),
    ],
    ids=lambda look: str(look.calls[0].arguments),
)
@pytest.mark.parametrize("mode", ["default", "bypass"])
async def test_a_secret_file_is_not_read_by_tool_or_command(studio: Studio, repo: Path, look: Move, mode: str) -> None:
    (repo / "keys").mkdir()
    for name in (".env", "keys/id_rsa"):
        (repo / name).write_text("TOKEN=CANARY\n")
    (repo / "way").symlink_to(".env")
    set_rules(studio, mode="bypass" if mode == "bypass" and _is_command(look) else "default", allow=["Read", "Bash"])
    add_sly_agent(studio, look)

    result = await run_sly_agent(studio, repo)

    assert "CANARY" not in "".join(studio.heard("sly"))
    assert not any("CANARY" in event.text for event in studio.events(result, ToolAnswered))
    assert (repo / ".env").read_text() == "TOKEN=CANARY\n"
    assert not (repo / "copy").exists() or "CANARY" not in (repo / "copy").read_text()


def _is_command(look: Move) -> bool:
    return "bash" in str(look)


def test_no_file_that_a_repository_commits_exposes_a_secret_beside_it(place: Place) -> None:
    committed = ("pyvenv.cfg", "app/pyvenv.cfg", "app/lib/python3.12/site-packages/x.py", ".aws/config", ".tox/x")
    secrets = (".env", "app/.env", ".aws/credentials", ".tox/.env")
    for name in (*committed, *secrets):
        (place.repo / name).parent.mkdir(parents=True, exist_ok=True)
        (place.repo / name).write_text("CANARY" if name in secrets else "committed")
    for path in place.repo.rglob("*"):
        os.chown(path, place.repo.stat().st_uid, place.repo.stat().st_gid)
    place.git("add", "-f", *committed)

    done = place.bash('cat "$@"; grep -r CANARY .; cat .aws/config', *secrets)

    assert "CANARY" not in done.text
    assert done.text.endswith("committed")


def test_a_secret_stays_hidden_when_the_folder_above_it_is_moved(place: Place) -> None:
    (place.repo / "app").mkdir()
    (place.repo / "app" / ".env").write_text("CANARY")
    owner = place.repo.stat()
    for path in (place.repo / "app", place.repo / "app" / ".env"):
        os.chown(path, owner.st_uid, owner.st_gid)

    told = SharedSandboxPlace(place.who, place.folder).run_in_turn("mv app moved", "cat app/.env moved/.env")

    assert "CANARY" not in told[1]


async def test_what_lies_outside_the_checkout_is_read_neither_by_tool_nor_by_command(
    studio: Studio, repo: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other-checkout"
    other.mkdir()
    (other / "a.txt").write_text("CANARY")
    set_rules(studio, mode="bypass")
    store = studio.settings.store
    paths = [str(other / "a.txt"), "../other-checkout/a.txt", str(store), "/etc/shadow"]
    add_sly_agent(studio, *(call("read_file", path=path) for path in paths), *(bash(f"cat {path}") for path in paths))

    result = await run_sly_agent(studio, repo)

    answered = studio.events(result, ToolAnswered)
    assert len(answered) == 8
    assert all(event.is_error for event in answered)
    assert not any("CANARY" in event.text or "SQLite" in event.text for event in answered)


# F8


def test_a_planted_link_or_open_folder_is_not_used_for_wakeup_sockets(tmp_path_factory: pytest.TempPathFactory) -> None:
    tmp_path = tmp_path_factory.mktemp("b")  # a short path, because wakeup sockets of long paths are placed elsewhere
    (tmp_path / "theirs").mkdir()
    (tmp_path / "podium.db-bells").symlink_to(tmp_path / "theirs")
    (tmp_path / "open.db-bells").mkdir()
    (tmp_path / "open.db-bells").chmod(0o777)

    for store in ("podium.db", "open.db"):
        with pytest.raises(StoreFailed, match="only you can access"):
            ensure_socket_folder(tmp_path / store)


def test_what_the_product_writes_belongs_to_the_person_alone(desk: Desk) -> None:
    desk.write_agent("writer", bash("cargo check"), "The end.", tools=["Bash"])
    before = os.umask(0)
    try:
        desk.run_podium("run", "writer", "go", "--park")
        [id] = [line.split()[0] for line in desk.run_podium("approvals").stdout.splitlines()]
        desk.run_podium("approve", id, "--always")
        desk.run_podium("resume", desk.run_id())
    finally:
        os.umask(before)

    modes = {path.name: path.stat().st_mode & 0o077 for path in desk.home.rglob("*") if not path.is_symlink()}
    assert {"podium.db", "allowed.json"} <= modes.keys()
    assert {name for name, mode in modes.items() if mode} == set()


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_a_new_home_and_everything_in_it_is_private_with_either_store(
    desk: Desk, tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    desk.write_agent("writer", bash("cargo check"), "The end.", tools=["Bash"])
    person = tmp_path / "person"
    person.mkdir(mode=0o755)
    home = person / "state" / ".podium"
    variables = {"HOME": str(person), "PODIUM_HOME": str(home)}
    if store == "postgresql":
        variables["PODIUM_STORE"] = request.getfixturevalue("postgres_url")
    before = os.umask(0o022)
    try:
        desk.run_podium("ps", **variables)
        parked = desk.run_podium("run", "writer", "go", "--park", **variables)
        said = desk.run_podium("approvals", **variables).stdout.splitlines()
        [id] = [line.split()[0] for line in said]
        desk.run_podium("approve", id, "--always", **variables)
    finally:
        os.umask(before)

    assert parked.returncode == 3, parked.stderr
    found = (home.parent, home, *(path for path in home.rglob("*") if not path.is_symlink()))
    assert home / "allowed.json" in found
    assert {path.name: oct(path.stat().st_mode) for path in found if path.stat().st_mode & 0o077} == {}


def test_only_the_usual_home_is_made_private_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, other = tmp_path / ".podium", tmp_path / "shared"
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder in (usual, other):
        folder.mkdir()
        folder.chmod(0o755)

    for folder in (usual, other):
        replace_file(folder / "deep" / "down" / "file", b"")

    assert [folder.stat().st_mode & 0o777 for folder in (usual, other)] == [0o700, 0o755]
    assert {path.stat().st_mode & 0o077 for folder in (usual, other) for path in folder.rglob("*")} == {0}


# F9


@pytest.mark.parametrize("path", [".GIT/hooks/pre-commit", ".Git/config", ".gi\u200dt/config", ".Envrc"])
async def test_other_spellings_of_protected_names_are_protected_too(studio: Studio, repo: Path, path: str) -> None:
    set_rules(studio, mode="bypass", allow=["Edit"])
    add_sly_agent(studio, write(path))

    result = await run_sly_agent(studio, repo)

    assert studio.events(result, ActionBegan) == []
    assert subprocess.run(["git", "-C", repo, "status", "--short"], capture_output=True, check=True).stdout == b""


def test_a_secret_in_a_protected_folder_opens_nothing_of_it(place: Place) -> None:
    (place.repo / ".claude" / "own").mkdir(parents=True)
    (place.repo / ".claude" / "own" / ".env").write_text("CANARY")
    owner = place.repo.stat()
    for path in (place.repo / ".claude", *(place.repo / ".claude").rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid)

    [told] = SharedSandboxPlace(place.who, place.folder).run_in_turn(
        "echo x >.claude/own/new; echo x >.claude/new; cat .claude/own/.env"
    )

    assert "CANARY" not in told
    assert [path.name for path in (place.repo / ".claude").rglob("*")] == ["own", ".env"]
