"""Attempts to approve one's own requests: an agent's commands cannot reach the store, its sockets or its mailboxes."""

from __future__ import annotations

import os
import select
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import podium
from podium.store.wakeup import WakeupSocket, ensure_socket_folder

from ..cli.conftest import Desk
from ..cli.test_inbox import list_waiting_requests
from ..workspace.sandboxed import Place
from .stage import SharedSandboxPlace, bash, call

BYPASS = ("--permissions", "bypass")

# S4

SELF_APPROVAL = """
import glob, json, os, socket, sqlite3, subprocess, sys
home, run, id = sys.argv[1:]
answer = json.dumps({"type": "permission_answered", "id": id, "decision": "once", "by": "me"})
for store in (home + "/podium.db", *glob.glob("/proc/[0-9]*/root" + home + "/podium.db")):
    try:
        connection = sqlite3.connect(f"file:{store}?mode=rw", uri=True, isolation_level=None)
        connection.execute("INSERT INTO mail (run, ref, at, line) VALUES (?, ?, 0, ?)", (run, id, answer.encode()))
        print("POSTED")
        break
    except sqlite3.Error as error:
        print("store:", error)
for bell in glob.glob(home + "/podium.db-bells/*"):
    print("SAW", bell)
try:
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"!", home + "/podium.db-bells/owner")
    print("RANG")
except OSError as error:
    print("bell:", error)
for verb in (["approvals"], ["approve", id]):
    done = subprocess.run(
        [sys.executable, "-m", "podium", *verb], env={**os.environ, "PODIUM_HOME": home}, capture_output=True, text=True
    )
    print(verb, done.returncode, done.stdout, done.stderr)
"""


@pytest.fixture
def self_approval(desk: Desk) -> tuple[Desk, str]:
    """Return a request that waits for a person, and a command with which an agent would answer it itself."""
    desk.write_agent("writer", call("write_file", path="a.txt", content="new\n"), "The end.", tools=["Write"])
    desk.run_podium("run", "writer", "go", "--park")
    [one] = list_waiting_requests(desk)
    # The agent gets its own copy of Podium, because it may not be able to see the installed one.
    shutil.copytree(Path(podium.__file__).parent, desk.repo / "own" / "podium")
    (desk.repo / "attack.py").write_text(SELF_APPROVAL)
    command = f"env PYTHONPATH=own {sys.executable} attack.py {desk.home} {desk.run_id()} {one['id']}"
    desk.write_agent("sly", bash(command), "The end.", tools=["Bash"])
    return desk, str(one["id"])


def test_no_command_answers_what_an_agent_asked(self_approval: tuple[Desk, str]) -> None:
    desk, id = self_approval

    done = desk.run_podium("run", "sly", "go", *BYPASS)
    told = desk.run_podium("logs", desk.run_id(), "--jsonl").stdout

    assert done.stdout == "The end.\n", done.stderr
    assert "store: unable to open database file" in told
    assert "no open requests" in told
    assert not any(word in told for word in ("POSTED", "SAW", "RANG", "was allowed"))
    assert [one["id"] for one in list_waiting_requests(desk)] == [id]
    assert not (desk.repo / "a.txt").exists()


def test_the_same_command_would_answer_it_without_a_sandbox(self_approval: tuple[Desk, str]) -> None:
    desk, _ = self_approval

    desk.run_podium("run", "sly", "go", *BYPASS, "--no-sandbox")

    assert "POSTED" in desk.run_podium("logs", desk.run_id(), "--jsonl").stdout
    assert list_waiting_requests(desk) == []


@pytest.mark.parametrize("where", ["home", "home in the checkout", "the checkout's own folder"])
def test_the_store_and_its_wakeup_sockets_are_hidden_wherever_they_are(place: Place, where: str) -> None:
    folder = {
        "home": place.home,
        "home in the checkout": place.repo / "home",
        "the checkout's own folder": place.repo / ".podium",
    }[where]
    folder.mkdir(mode=0o700, exist_ok=True)
    store = folder / "podium.db"
    store.write_text("CANARY")
    wakeup = WakeupSocket(ensure_socket_folder(store), "owner")
    for path in (folder, wakeup.path.parent, wakeup.path, store):
        path.chmod(0o777)

    home = place.home if where.startswith("the checkout") else folder
    done = place.bash(
        'cat "$1"; ls -A "$1-bells"; echo x >>"$1"; echo x >"$1-bells/new"; mv "$1" x; ls -A /tmp; exit 0',
        str(store),
        home=home,
        store=store,
    )

    assert "CANARY" not in done.text
    assert "owner-" not in done.text
    assert store.read_text() == "CANARY"
    assert list(wakeup.path.parent.iterdir()) == [wakeup.path]
    assert select.select([wakeup], [], [], 0)[0] == []
    wakeup.close()


@pytest.mark.parametrize("what", ["home", "store"])
def test_a_home_or_store_in_the_checkout_stays_hidden_when_folders_above_it_are_moved(place: Place, what: str) -> None:
    folder = place.repo / "above" / "state"
    folder.mkdir(parents=True)
    (folder / "podium.db").write_text("CANARY")
    _chown_to_user(place, place.repo / "above")
    options: dict[str, Any] = {"home": folder} if what == "home" else {"store": folder / "podium.db"}

    told = SharedSandboxPlace(place.who, place.folder).run_in_turn(
        "mv above elsewhere", "cat elsewhere/state/podium.db; echo mine >elsewhere/state/podium.db", **options
    )

    assert "CANARY" not in told[1]
    found = [path.read_text() for path in place.repo.rglob("podium.db")]
    assert found == ["CANARY"]


def _chown_to_user(place: Place, folder: Path) -> None:
    if place.who == "user" and os.geteuid() == 0:
        owner = place.repo.stat()
        for path in (folder, *folder.rglob("*")):
            os.chown(path, owner.st_uid, owner.st_gid)


def test_a_store_at_the_top_of_the_checkout_is_hidden_and_commands_run(place: Place) -> None:
    store = place.repo / "podium.db"
    store.write_text("CANARY")
    (place.repo / "podium.db-bells").mkdir(mode=0o700)

    done = place.bash("cat a.txt podium.db; ls -A podium.db-bells; exit 0", store=store)

    assert done.text.startswith("one\n")
    assert "CANARY" not in done.text


def test_a_store_in_a_folder_of_the_path_is_hidden(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = place.folder / "programs"
    folder.mkdir()
    (folder / "podium.db").write_text("CANARY")
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{folder}")

    done = place.bash('cat "$1"', str(folder / "podium.db"), store=folder / "podium.db")

    assert "CANARY" not in done.text
