"""Mirrors of remotes: they fetch what a run needs, push its commits, and survive kills and bad remotes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from anyio import create_task_group, fail_after, sleep

from podium.values.errors import OutsideFailed
from podium.workspace.travel.remote_url import parse_remote_url
from podium.workspace.travel.repository_cache import Mirror, RepositoryCache, run_ref
from podium.workspace.travel.run_location import open_run_clone

from .git_servers import serve_git, write_ssh_stub
from .merging import Repo

LONG = 40.0


@dataclass
class Remote:
    """A bare repository, a clone of it, and the mirror of it in a Podium home."""

    repo: Repo
    path: Path
    home: Path

    @property
    def mirror(self) -> Mirror:
        return RepositoryCache(home=self.home).open_mirror(str(self.path))

    @property
    def objects(self) -> Path:
        return self.repo.path / ".git" / "objects"

    def refs(self) -> dict[str, str]:
        out = self.repo.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/podium", at=self.path)
        return dict(line.split(" ", 1) for line in out.splitlines())


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    repo = Repo(tmp_path / "repo")
    repo.git("clone", "-q", "--bare", str(repo.path), str(tmp_path / "remote.git"))
    return Remote(repo, tmp_path / "remote.git", tmp_path / "home")


async def test_only_what_a_run_needs_is_fetched(remote: Remote) -> None:
    base = remote.repo.tip()
    other = remote.repo.branch("other", {"c.txt": "c\n"})
    remote.repo.git("push", "-q", str(remote.path), "other")

    await remote.mirror.fetch_runs(["r1"], [base])

    assert await remote.mirror.has_commit(base)
    assert not await remote.mirror.has_commit(other)


async def test_several_processes_and_tasks_create_one_mirror(remote: Remote) -> None:
    base = remote.repo.tip()

    async with create_task_group() as group:
        for number in range(4):
            group.start_soon(remote.mirror.fetch_runs, [f"r{number}"], [base])

    assert await remote.mirror.has_commit(base)
    assert sorted(path.name for path in remote.mirror.folder.iterdir()) == ["lock", "mirror.git"]


async def test_a_commit_that_is_on_no_branch_arrives_through_the_ref_of_its_run(remote: Remote) -> None:
    commit = remote.repo.commit({"c.txt": "c\n"})
    server = RepositoryCache(home=remote.home / "server").open_mirror(str(remote.path))
    with pytest.raises(OutsideFailed, match=f"commit {commit[:12]} is not on {remote.path}; push a branch"):
        await server.fetch_runs(["r1"], [commit])

    await remote.mirror.push(remote.objects, commit, run_ref("r1", "base"))
    await server.fetch_runs(["r1"], [commit])

    clone = await open_run_clone(server, "r1", commit)
    assert Repo.git(remote.repo, "cat-file", "-p", f"{commit}:c.txt", at=clone.root) == "c"


async def test_a_server_that_gives_no_commit_by_its_id_gives_its_branches(remote: Remote) -> None:
    first = remote.repo.tip()
    remote.repo.commit({"c.txt": "c\n"})
    remote.repo.git("push", "-q", str(remote.path), "main")
    remote.repo.git("config", "protocol.version", "0", at=remote.path)
    settings = remote.home.parent / "gitconfig"
    settings.write_text("[protocol]\n\tversion = 0\n")

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_CONFIG_GLOBAL", str(settings))
        await remote.mirror.fetch_runs(["r1"], [first])

    assert await remote.mirror.has_commit(first)


async def test_an_interrupted_mirror_is_created_again(remote: Remote) -> None:
    unfinished = remote.mirror.folder / "mirror.git.new"
    unfinished.mkdir(parents=True)
    (unfinished / "HEAD").write_text("half")

    await remote.mirror.fetch_runs(["r1"], [remote.repo.tip()])

    assert not unfinished.exists()
    assert await remote.mirror.has_commit(remote.repo.tip())


FETCHES = """
import sys, anyio
from pathlib import Path
from podium.workspace.travel.repository_cache import RepositoryCache
home, url, commit = sys.argv[1:]
anyio.run(RepositoryCache(home=Path(home)).open_mirror(url).fetch_runs, ["r1"], [commit])
"""


async def test_a_kill_in_the_middle_of_a_clone_leaves_nothing_running_and_the_next_one_succeeds(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.repo.commit({"large.bin": os.urandom(400_000)})
    remote.repo.git("push", "-q", str(remote.path), "main")
    stub = write_ssh_stub(tmp_path / "bin")
    (stub.parent / "stall").write_text("200000")
    monkeypatch.setenv("GIT_SSH_COMMAND", str(stub))
    url, commit = f"git@example.com:{remote.path}", remote.repo.tip()
    process = subprocess.Popen([sys.executable, "-c", FETCHES, str(remote.home), url, commit])
    with fail_after(LONG):
        while not (stub.parent / "stalled").exists():  # noqa: ASYNC110 - another process creates it
            await sleep(0.02)

    process.send_signal(signal.SIGKILL)
    process.wait()
    (stub.parent / "stall").unlink()
    mirror = RepositoryCache(home=remote.home).open_mirror(url)
    with fail_after(LONG):
        await mirror.fetch_runs(["r1"], [commit])

    assert await mirror.has_commit(commit)
    assert not list((mirror.path / "objects" / "pack").glob("tmp_*"))
    assert remote.repo.git("fsck", "--no-dangling", at=mirror.path) == ""
    with fail_after(LONG):
        while find_processes(f"GIT_DIR={mirror.path}"):  # noqa: ASYNC110 - the processes belong to nobody
            await sleep(0.02)


def find_processes(variable: str) -> list[int]:
    """Return the processes with this environment variable."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


PUSHES = """
import sys, anyio
from pathlib import Path
from podium.workspace.travel.repository_cache import RepositoryCache
home, url, objects, commit, ref = sys.argv[1:]
anyio.run(RepositoryCache(home=Path(home)).open_mirror(url).push, Path(objects), commit, ref)
"""


@pytest.mark.slow
async def test_a_kill_in_the_middle_of_a_push_changes_nothing_and_the_next_one_succeeds(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = remote.repo.commit({"c.txt": "c\n"})
    stub = write_ssh_stub(tmp_path / "bin")
    (stub.parent / "stall").write_text("20")
    monkeypatch.setenv("GIT_SSH_COMMAND", str(stub))
    url, ref = f"git@example.com:{remote.path}", run_ref("r1", 2)
    arguments = (str(remote.home), url, str(remote.objects), commit, ref)
    process = subprocess.Popen([sys.executable, "-c", PUSHES, *arguments])
    with fail_after(LONG):
        while not (stub.parent / "stalled").exists():  # noqa: ASYNC110 - another process creates it
            await sleep(0.02)

    process.send_signal(signal.SIGKILL)
    process.wait()
    (stub.parent / "stall").unlink()

    assert remote.refs() == {}
    await RepositoryCache(home=remote.home).open_mirror(url).push(remote.objects, commit, ref)
    assert remote.refs() == {ref: commit}
    assert remote.repo.git("fsck", "--no-dangling", at=remote.path) == ""


async def test_a_run_pushes_only_to_the_ref_of_its_epoch(remote: Remote) -> None:
    first, second = remote.repo.tip(), remote.repo.commit({"c.txt": "c\n"})
    await remote.mirror.push(remote.objects, first, run_ref("r1", 2))

    await remote.mirror.push(remote.objects, second, run_ref("r1", 3))
    await remote.mirror.push(remote.objects, second, run_ref("r1", 2), expected=first)

    assert remote.refs() == {run_ref("r1", 2): second, run_ref("r1", 3): second}


async def test_a_ref_that_another_process_moved_is_not_overwritten(remote: Remote, tmp_path: Path) -> None:
    stranger = Repo(tmp_path / "stranger")
    theirs = stranger.commit({"theirs.txt": "t\n"})
    stranger.git("push", "-q", str(remote.path), f"{theirs}:{run_ref('r1', 2)}")

    with pytest.raises(OutsideFailed, match=f"another process has pushed {theirs[:12]}"):
        await remote.mirror.push(remote.objects, remote.repo.tip(), run_ref("r1", 2))

    assert remote.refs() == {run_ref("r1", 2): theirs}


async def test_a_push_whose_result_was_lost_does_not_block_the_next_one(remote: Remote) -> None:
    commits = [remote.repo.commit({"c.txt": f"{number}\n"}) for number in range(3)]
    ref = run_ref("r1", 2)
    await remote.mirror.push(remote.objects, commits[0], ref)
    await remote.mirror.push(remote.objects, commits[1], ref, expected=commits[0])

    await remote.mirror.push(remote.objects, commits[1], ref, expected=commits[0])
    await remote.mirror.push(remote.objects, commits[2], ref, expected=commits[0])

    assert remote.refs() == {ref: commits[2]}


async def test_a_remote_that_is_gone_or_read_only_is_named_with_git_s_own_reason(remote: Remote) -> None:
    hook = remote.path / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho this repository is read-only >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(OutsideFailed, match=r"cannot push to .*remote\.git: .*read-only"):
        await remote.mirror.push(remote.objects, remote.repo.tip(), run_ref("r1", 2))

    shutil.rmtree(remote.path)
    with pytest.raises(OutsideFailed, match=r"cannot push to .*remote\.git: .*does not appear to be a git repository"):
        await remote.mirror.push(remote.objects, remote.repo.tip(), run_ref("r1", 2))
    with pytest.raises(OutsideFailed, match=r"cannot fetch from .*remote\.git: "):
        await remote.mirror.fetch_runs(["r1"], [remote.repo.tip()])


async def test_a_remote_that_hangs_is_given_up(remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = write_ssh_stub(tmp_path / "bin")
    (stub.parent / "stall").write_text("0")
    monkeypatch.setenv("GIT_SSH_COMMAND", str(stub))
    mirror = RepositoryCache(home=remote.home).open_mirror(f"git@example.com:{remote.path}")
    began = time.monotonic()

    with pytest.raises(OutsideFailed, match=r"git push with .* did not finish within 0\.5 s"):
        await mirror.push(remote.objects, remote.repo.tip(), run_ref("r1", 2), timeout=0.5)

    assert time.monotonic() - began < LONG / 2


async def test_the_refs_of_a_run_are_deleted_and_those_of_other_runs_stay(remote: Remote) -> None:
    for run in ("r1", "r2"):
        for part in ("base", 2):
            await remote.mirror.push(remote.objects, remote.repo.tip(), run_ref(run, part))
    await remote.mirror.fetch_runs(["r1", "r2"])

    assert await remote.mirror.delete_runs(["r1"]) == 2

    assert sorted(remote.refs()) == [run_ref("r2", 2), run_ref("r2", "base")]
    assert await remote.mirror.delete_runs(["r1"]) == 0


async def test_neither_hooks_nor_settings_of_a_worker_s_repository_run_when_it_is_pushed(remote: Remote) -> None:
    mark = remote.home.parent / "mark"
    attack = remote.repo.path / ".git" / "hooks" / "pre-push"
    attack.parent.mkdir(exist_ok=True)
    attack.write_text(f"#!/bin/sh\ntouch {mark}\n")
    attack.chmod(0o755)
    remote.repo.git("config", "core.sshCommand", f"touch {mark};")
    remote.repo.git("config", f"url.ext::touch {mark}.insteadOf", str(remote.path))
    remote.repo.git("config", "credential.helper", f"!touch {mark}")

    await remote.mirror.push(remote.objects, remote.repo.tip(), run_ref("r1", 2))

    assert not mark.exists()
    assert list(remote.refs()) == [run_ref("r1", 2)]


async def test_a_protocol_that_runs_a_command_is_refused_even_if_the_user_s_settings_ask_for_it(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "gitconfig"
    settings.write_text(
        f'[protocol]\n\tallow = always\n[url "ext::touch {tmp_path}/mark "]\n\tinsteadOf = {remote.path}\n'
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))

    with pytest.raises(OutsideFailed, match="transport 'ext' not allowed"):
        await remote.mirror.fetch_runs(["r1"], [remote.repo.tip()])

    assert not (tmp_path / "mark").exists()


async def test_code_travels_over_ssh(remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = write_ssh_stub(tmp_path / "bin")
    monkeypatch.setenv("GIT_SSH_COMMAND", str(stub))
    url = parse_remote_url(f"ssh://git:secret@example.com{remote.path}")
    mirror = RepositoryCache(home=remote.home).open_mirror(url)

    await mirror.push(remote.objects, remote.repo.tip(), run_ref("r1", 2))
    await mirror.fetch_runs(["r1"])

    assert await mirror.has_commit(remote.repo.tip())
    assert "secret" not in (stub.parent / "calls").read_text()


async def test_code_travels_over_http_with_the_password_of_the_user_s_credential_helper(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "gitconfig"
    remote.repo.git("config", "http.receivepack", "true", at=remote.path)
    with serve_git(tmp_path) as address:
        mirror = RepositoryCache(home=remote.home).open_mirror(f"http://me:wrong@{address}/remote.git")
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
        with pytest.raises(OutsideFailed, match="could not read Username") as refused:
            await mirror.push(remote.objects, remote.repo.tip(), run_ref("r1", 2))
        settings.write_text('[credential]\n\thelper = "!f() { echo username=me; echo password=sesame; }; f"\n')

        await mirror.push(remote.objects, remote.repo.tip(), run_ref("r1", 2))
        await mirror.fetch_runs(["r1"])

    assert await mirror.has_commit(remote.repo.tip())
    assert "wrong" not in str(refused.value)
    assert "wrong" not in str(mirror)
