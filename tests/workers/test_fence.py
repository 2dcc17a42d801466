"""The fence around a worker: what its commands cannot reach, and what nobody can do in its name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from podium.store.sqlite.open_requests import list_open_requests
from podium.store.wakeup import ensure_socket_folder
from podium.testing import ModelServer
from podium.values.event import PermissionAsked, ToolAnswered
from podium.workers.commander_socket import commander_socket_path
from podium.workers.delegate import start_commander
from podium.workers.provider_keys import announce_keys

from .wire.meeting import raw
from .worker_lab import KEY, SILENT, Yard, bash, write

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


def scripts(yard: Yard) -> None:
    yard.repo.commit({"approving.py": APPROVING.replace("KEYNAME", "OPENAI_API"), "rewriting.sh": REWRITING})


async def told(yard: Yard, run: str, count: int = 1) -> str:
    answered = await yard.wait_for(run, ToolAnswered, count=count)
    assert isinstance(answered, ToolAnswered)
    return answered.text


async def test_no_command_of_a_worker_reaches_who_approves_or_the_keys(yard: Yard) -> None:
    scripts(yard)
    other = await yard.hire("feat/other", write("other.txt"), "never", allow=())
    yard.command()
    asked = await yard.asked(other)
    attack = f"{sys.executable} approving.py {yard.home} {commander_socket_path(yard.store)} {other} {asked.id}"
    run = await yard.hire("feat/one", bash(attack), "tried", allow=())
    yard.answer(run, await yard.asked(run), "once")

    text = await told(yard, run)

    assert "END" in text
    assert not any(word in text for word in ("POSTED", "CONNECTED", "SAW", "READ")), text
    assert [one.asked.id for one in list_open_requests(yard.store)] == [asked.id]
    for worker in (await yard.worker(other),):
        assert KEY.encode() not in Path(f"/proc/{worker.pid}/environ").read_bytes()
        assert KEY.encode() not in Path(f"/proc/{worker.pid}/cmdline").read_bytes()
    yard.stop(other)
    await yard.over()
    assert KEY not in yard.logs(run)
    yard.check(run, other)


async def test_no_command_of_a_worker_changes_what_git_knows_and_git_works_for_it(yard: Yard) -> None:
    scripts(yard)
    refs = yard.repo.git("for-each-ref", "refs/heads/main")
    config = (yard.repo.path / ".git" / "config").read_bytes()
    run = await yard.hire("feat/one", bash("sh rewriting.sh"), "tried", allow=())
    yard.command()
    yard.answer(run, await yard.asked(run), "once")

    text = await told(yard, run)
    await yard.ended(run)

    await yard.over()
    assert "DONE" not in text, text
    assert "WROTE" not in text, text
    assert " M a.txt" in text
    assert "a.txt | 1 +" in " ".join(text.split())
    assert yard.repo.git("for-each-ref", "refs/heads/main") == refs
    assert (yard.repo.path / ".git" / "config").read_bytes() == config
    assert list((yard.repo.path / ".git" / "hooks").glob("post-checkout")) == []
    assert yard.commits("feat/one") == ["work on feat/one"]
    assert yard.repo.git("diff", "--name-only", "main...feat/one") == "a.txt"
    yard.check(run)


EXECUTED = (
    *("sitecustomize.py", "conftest.py", "anyio.py", "podium.py", "msgspec/__init__.py", "podium/__main__.py"),
    *("Makefile", "package.json", "pyvenv.cfg", "git", "bin/git", "bwrap", "rg"),
)
"""Names under which one program or another would execute a file of the folder that it is started in."""


async def test_nothing_that_a_worker_wrote_is_executed_outside_the_sandbox(yard: Yard) -> None:
    canary = yard.folder / "canary"
    touching = {
        ".py": f"open({str(canary)!r}, 'w')\n",
        "": f"#!/bin/sh\ntouch {canary}\n",
        "Makefile": f"all:\n\ttouch {canary}\n",
        "package.json": f'{{"scripts": {{"test": "touch {canary}"}}}}',
    }
    written = [write(name, touching.get(name) or touching.get(Path(name).suffix, "")) for name in EXECUTED]
    planted = await yard.hire("feat/one", *written, bash("chmod -R +x ."), "planted")
    following = await yard.hire("feat/two", bash("ls"), "done", follows=["feat/one"])
    yard.command()
    for run in (planted, following):
        assert (await yard.ended(run)).outcome == "succeeded", yard.logs(run)
    await yard.over()

    for words in (["workers"], ["worktrees"], ["results", "--workers"], ["merge", "feat/one", "feat/two", "--yes"]):
        done = await yard.podium(*words)
        assert done.returncode == 0, done.stderr

    assert (yard.repo.path / "sitecustomize.py").exists()
    assert (await yard.podium("worktrees", "cleanup")).returncode == 0
    assert not canary.exists()


async def test_nobody_is_let_in_with_a_token_that_is_none(yard: Yard) -> None:
    run = await yard.hire("feat/one", write("one.txt"), "done", allow=())
    yard.command()
    asked: PermissionAsked = await yard.asked(run)

    async with raw(commander_socket_path(yard.store)) as stranger:
        answer = await stranger.shake("no token", worker=run)
    async with raw(commander_socket_path(yard.store)) as stranger:
        await stranger.say(type="permission_response", request_id=asked.id, result={"type": "approve"})
        closed = await stranger.hear()

    assert not answer["accepted"]
    assert "nobody's" in answer["error"]
    assert answer["config"] == {}
    assert not closed["accepted"]
    assert [one.asked.id for one in list_open_requests(yard.store)] == [asked.id]
    yard.stop(run)
    await yard.over()
    yard.check(run)


async def test_a_worker_process_that_is_told_nothing_ends(yard: Yard) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "podium.processes.worker_main"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 1
    assert "Traceback" not in done.stderr


async def test_a_worker_process_whose_commander_is_gone_ends(yard: Yard) -> None:
    hello = {"socket": str(yard.folder / "nowhere"), "run": "r", "token": "t", "parent": 1}

    done = subprocess.run(
        [sys.executable, "-m", "podium.processes.worker_main"], input=json.dumps(hello), capture_output=True, text=True
    )

    assert done.returncode == 3


async def test_a_worker_calls_its_model_with_the_key_of_whoever_hired_it(yard: Yard) -> None:
    first = await yard.hire("feat/one", SILENT)
    yard.command(OPENAI_API_KEY="another-key")
    await yard.called(1)

    second = await yard.hire("feat/two", "two")

    assert (await yard.ended(second)).outcome == "succeeded"
    keys = [call.headers["authorization"].removeprefix("Bearer ") for call in yard.server.calls]
    assert keys == ["another-key", KEY]
    for file in yard.home.rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes(), file
    yard.stop(first)
    await yard.over()


async def test_a_worker_that_is_hired_while_another_shell_starts_its_commander_waits_for_its_own_key(
    yard: Yard,
) -> None:
    first = await yard.hire("feat/one", SILENT)
    with announce_keys(yard.store) as promise:
        second = await yard.hire("feat/two", "two", run=promise.run)
        yard.command(OPENAI_API_KEY="another-key")
        await yard.called(1)

        start_commander(yard.settings(), yard.environ, delivery=promise)

    assert (await yard.ended(second)).outcome == "succeeded"
    keys = [call.headers["authorization"].removeprefix("Bearer ") for call in yard.server.calls]
    assert keys == ["another-key", KEY]
    yard.stop(first)
    await yard.over()
    yard.check(first, second)
    assert list(ensure_socket_folder(yard.store).glob("keys-*")) == []


async def test_who_becomes_the_commander_keeps_its_promise_by_that(yard: Yard) -> None:
    yard.set("")
    run = (await yard.podium("delegate", "feat/one", "```script\n[]\n```")).stdout.strip()

    await yard.ended(run)
    await yard.deserted()

    [call] = yard.server.calls
    assert call.headers["authorization"] == f"Bearer {KEY}"
    assert list(ensure_socket_folder(yard.store).glob("keys-*")) == []


async def test_no_key_goes_to_an_address_that_another_shell_has_given(yard: Yard) -> None:
    async with ModelServer() as elsewhere:
        moved = {"ANTHROPIC_BASE_URL": elsewhere.url.removesuffix("/v1"), "ANTHROPIC_API_KEY": "not-for-here"}
        first = await yard.hire("feat/one", SILENT)
        yard.command(**moved, OPENAI_API_KEY="another-key")
        await yard.called(1)
        anthropic = {"ANTHROPIC_BASE_URL": yard.server.url.removesuffix("/v1"), "ANTHROPIC_API_KEY": KEY}
        script = "```script\n[]\n```"

        told = [
            await yard.podium("delegate", "feat/two", script, "--model", "anthropic:m", "--json", **anthropic),
            await yard.podium("delegate", "feat/three", script, "--json", OPENAI_API_KEY=""),
        ]

        for one in told:
            assert one.returncode == 0, one.stderr
            await yard.ended(json.loads(one.stdout)["id"])
        assert elsewhere.calls == []
        _, second, third = yard.server.calls
        assert second.headers["x-api-key"] == KEY
        assert "another-key" not in third.headers.get("authorization", "")
        yard.stop(first)
        await yard.over()
