"""Isolation of a worker: what its commands cannot reach, and that no other process can act for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from podium.core.placement import WorkerOptions
from podium.store.request_list import list_open_requests
from podium.store.wakeup import ensure_socket_folder
from podium.testing import ModelServer
from podium.values.event import PermissionAsked, ToolAnswered
from podium.workers.commander_socket import commander_socket_path
from podium.workers.delegation import start_commander
from podium.workers.provider_keys import announce_keys

from .wire.meeting import connect_raw_peer
from .worker_lab import KEY, SILENT, WorkerLab, bash, write

APPROVING = """
import glob, os, socket, sqlite3, sys
home, commander, run, id = sys.argv[1:]
for store in (home + "/podium.db", *glob.glob("/proc/[0-9]*/root" + home + "/podium.db")):
    try:
        connection = sqlite3.connect(f"file:{store}?mode=rw", uri=True, isolation_level=None)
        connection.execute("INSERT INTO mail (run, ref, at, line) VALUES (?, ?, 0, '{}')", (run, id))
        print("POSTED")
    except sqlite3.Error as error:
        print("store:", error)
try:
    socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect(commander)
    print("CONNECTED")
except OSError as error:
    print("commander:", error)
for bell in glob.glob(os.path.dirname(commander) + "/*"):
    print("SAW", bell)
for file in glob.glob("/proc/[0-9]*/environ"):
    try:
        if b"KEYNAME" in open(file, "rb").read() or b"sk-the" in open(file, "rb").read():
            print("READ", file)
    except OSError as error:
        print("environ:", error)
print("pids", len(glob.glob("/proc/[0-9]*")))
print("END")
"""

REWRITING = """
tried() { "$@" >/dev/null 2>&1 && echo "DONE: $*"; }
into() { (printf 'gitdir: /tmp\\n' >"$1") 2>/dev/null && echo "WROTE $1"; }
common=$(git rev-parse --git-common-dir) own=$(git rev-parse --git-dir)
for file in .git "$own/commondir" "$own/gitdir" "$own/HEAD" "$own/config.worktree" "$common/config" \\
  "$common/refs/heads/main" "$common/refs/heads/feat/one" "$common/hooks/post-checkout" "$common/info/attributes" \\
  "$common/objects/info/alternates" "$common/packed-refs"; do into "$file"; done
tried rm .git; tried mv .git other; tried git config core.fsmonitor x
tried git add -A; tried git commit -q -m mine --allow-empty; tried git update-ref refs/heads/main HEAD
tried git branch mine; tried git stash; tried git checkout -q -b other; tried git worktree add /tmp/other
echo changed >>a.txt
git status --porcelain
git diff --stat
echo END
"""


def commit_scripts(lab: WorkerLab) -> None:
    lab.repo.commit({"approving.py": APPROVING.replace("KEYNAME", "OPENAI_API"), "rewriting.sh": REWRITING})


async def wait_tool_answer(lab: WorkerLab, run: str, count: int = 1) -> str:
    answered = await lab.wait_for_event(run, ToolAnswered, count=count)
    assert isinstance(answered, ToolAnswered)
    return answered.text


async def test_no_command_of_a_worker_reaches_the_store_the_commander_or_the_keys(lab: WorkerLab) -> None:
    commit_scripts(lab)
    other = await lab.delegate("feat/other", write("other.txt"), "never", allow=())
    lab.start_commander()
    asked = await lab.wait_asked(other)
    attack = f"{sys.executable} approving.py {lab.home} {commander_socket_path(lab.store)} {other} {asked.id}"
    run = await lab.delegate("feat/one", bash(attack), "tried", allow=())
    lab.answer(run, await lab.wait_asked(run), "once")

    text = await wait_tool_answer(lab, run)

    assert "END" in text
    assert not any(word in text for word in ("POSTED", "CONNECTED", "SAW", "READ")), text
    assert [one.asked.id for one in list_open_requests(lab.store)] == [asked.id]
    for worker in (await lab.wait_worker(other),):
        assert KEY.encode() not in Path(f"/proc/{worker.pid}/environ").read_bytes()
        assert KEY.encode() not in Path(f"/proc/{worker.pid}/cmdline").read_bytes()
    lab.stop(other)
    await lab.wait_finished()
    assert KEY not in lab.logs(run)
    lab.assert_clean_end(run, other)


async def test_no_command_of_a_worker_changes_the_git_directory_and_git_works_for_it(lab: WorkerLab) -> None:
    commit_scripts(lab)
    refs = lab.repo.git("for-each-ref", "refs/heads/main")
    config = (lab.repo.path / ".git" / "config").read_bytes()
    run = await lab.delegate("feat/one", bash("sh rewriting.sh"), "tried", allow=())
    lab.start_commander()
    lab.answer(run, await lab.wait_asked(run), "once")

    text = await wait_tool_answer(lab, run)
    await lab.wait_ended(run)

    await lab.wait_finished()
    assert "DONE" not in text, text
    assert "WROTE" not in text, text
    assert " M a.txt" in text
    assert "a.txt | 1 +" in " ".join(text.split())
    assert lab.repo.git("for-each-ref", "refs/heads/main") == refs
    assert (lab.repo.path / ".git" / "config").read_bytes() == config
    assert list((lab.repo.path / ".git" / "hooks").glob("post-checkout")) == []
    assert lab.commits("feat/one") == ["work on feat/one"]
    assert lab.repo.git("diff", "--name-only", "main...feat/one") == "a.txt"
    lab.assert_clean_end(run)


EXECUTED = (
    *("sitecustomize.py", "conftest.py", "anyio.py", "podium.py", "msgspec/__init__.py", "podium/__main__.py"),
    *("Makefile", "package.json", "pyvenv.cfg", "git", "bin/git", "bwrap", "rg"),
)
"""File names that some program would execute in the folder in which it is started."""


async def test_nothing_that_a_worker_wrote_is_executed_outside_the_sandbox(lab: WorkerLab) -> None:
    canary = lab.folder / "canary"
    touching = {
        ".py": f"open({str(canary)!r}, 'w')\n",
        "": f"#!/bin/sh\ntouch {canary}\n",
        "Makefile": f"all:\n\ttouch {canary}\n",
        "package.json": f'{{"scripts": {{"test": "touch {canary}"}}}}',
    }
    written = [write(name, touching.get(name) or touching.get(Path(name).suffix, "")) for name in EXECUTED]
    planted = await lab.delegate("feat/one", *written, bash("chmod -R +x ."), "planted")
    following = await lab.delegate("feat/two", bash("ls"), "done", options=WorkerOptions(after=("feat/one",)))
    lab.start_commander()
    for run in (planted, following):
        assert (await lab.wait_ended(run)).outcome == "succeeded", lab.logs(run)
    await lab.wait_finished()

    for words in (["workers"], ["worktrees"], ["results", "--workers"], ["merge", "feat/one", "feat/two", "--yes"]):
        done = await lab.run_podium(*words)
        assert done.returncode == 0, done.stderr

    assert (lab.repo.path / "sitecustomize.py").exists()
    assert (await lab.run_podium("worktrees", "cleanup")).returncode == 0
    assert not canary.exists()


async def test_a_connection_with_an_invalid_token_is_refused(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", write("one.txt"), "done", allow=())
    lab.start_commander()
    asked: PermissionAsked = await lab.wait_asked(run)

    async with connect_raw_peer(commander_socket_path(lab.store)) as stranger:
        answer = await stranger.send_handshake("no token", worker=run)
    async with connect_raw_peer(commander_socket_path(lab.store)) as stranger:
        await stranger.send_message(type="permission_response", request_id=asked.id, result={"type": "approve"})
        closed = await stranger.receive_message()

    assert not answer["accepted"]
    assert "unknown token" in answer["error"]
    assert answer["config"] == {}
    assert not closed["accepted"]
    assert [one.asked.id for one in list_open_requests(lab.store)] == [asked.id]
    lab.stop(run)
    await lab.wait_finished()
    lab.assert_clean_end(run)


async def test_a_worker_process_without_input_exits(lab: WorkerLab) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "podium.programs.worker"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 1
    assert "Traceback" not in done.stderr


async def test_a_worker_process_whose_commander_is_gone_ends(lab: WorkerLab) -> None:
    handshake = {"type": "handshake", "worker": "r", "token": "t"}
    startup_message = {"socket": str(lab.folder / "nowhere"), "parent": 1, "handshake": handshake}

    done = subprocess.run(
        [sys.executable, "-m", "podium.programs.worker"],
        input=json.dumps(startup_message),
        capture_output=True,
        text=True,
    )

    assert done.returncode == 3


async def test_a_worker_calls_its_model_with_the_key_of_the_shell_that_delegated_it(lab: WorkerLab) -> None:
    first = await lab.delegate("feat/one", SILENT)
    lab.start_commander(OPENAI_API_KEY="another-key")
    await lab.wait_called(1)

    second = await lab.delegate("feat/two", "two")

    assert (await lab.wait_ended(second)).outcome == "succeeded"
    keys = [call.headers["authorization"].removeprefix("Bearer ") for call in lab.server.calls]
    assert keys == ["another-key", KEY]
    for file in lab.home.rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes(), file
    lab.stop(first)
    await lab.wait_finished()


@pytest.mark.slow
async def test_a_worker_delegated_while_another_shell_starts_the_commander_waits_for_its_own_key(
    lab: WorkerLab,
) -> None:
    first = await lab.delegate("feat/one", SILENT)
    with announce_keys(lab.store) as delivery:
        second = await lab.delegate("feat/two", "two", run=delivery.run)
        lab.start_commander(OPENAI_API_KEY="another-key")
        await lab.wait_called(1)

        start_commander(lab.settings(), lab.environ, delivery=delivery)

    assert (await lab.wait_ended(second)).outcome == "succeeded"
    keys = [call.headers["authorization"].removeprefix("Bearer ") for call in lab.server.calls]
    assert keys == ["another-key", KEY]
    lab.stop(first)
    await lab.wait_finished()
    lab.assert_clean_end(first, second)
    assert list(ensure_socket_folder(lab.store).glob("keys-*")) == []


@pytest.mark.slow
async def test_a_shell_that_becomes_the_commander_has_delivered_its_keys(lab: WorkerLab) -> None:
    lab.write_settings("")
    run = (await lab.run_podium("delegate", "feat/one", "```script\n[]\n```")).stdout.strip()

    await lab.wait_ended(run)
    await lab.wait_no_processes()

    [call] = lab.server.calls
    assert call.headers["authorization"] == f"Bearer {KEY}"
    assert list(ensure_socket_folder(lab.store).glob("keys-*")) == []


async def test_no_key_goes_to_an_address_that_another_shell_has_given(lab: WorkerLab) -> None:
    async with ModelServer() as elsewhere:
        moved = {"ANTHROPIC_BASE_URL": elsewhere.url.removesuffix("/v1"), "ANTHROPIC_API_KEY": "not-for-here"}
        first = await lab.delegate("feat/one", SILENT)
        lab.start_commander(**moved, OPENAI_API_KEY="another-key")
        await lab.wait_called(1)
        anthropic = {"ANTHROPIC_BASE_URL": lab.server.url.removesuffix("/v1"), "ANTHROPIC_API_KEY": KEY}
        script = "```script\n[]\n```"

        told = [
            await lab.run_podium("delegate", "feat/two", script, "--model", "anthropic:m", "--json", **anthropic),
            await lab.run_podium("delegate", "feat/three", script, "--json", OPENAI_API_KEY=""),
        ]

        for one in told:
            assert one.returncode == 0, one.stderr
            await lab.wait_ended(json.loads(one.stdout)["id"])
        assert elsewhere.calls == []
        _, second, third = lab.server.calls
        assert second.headers["x-api-key"] == KEY
        assert "another-key" not in third.headers.get("authorization", "")
        lab.stop(first)
        await lab.wait_finished()
